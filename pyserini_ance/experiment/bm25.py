"""BM25's rankings: each is made once for the same documents, queries and settings, and lies in the cache for every other run."""

import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pyserini_ance.data.collection import Collection, Texts
from pyserini_ance.data.strings import STRINGS_PER_BLOCK
from pyserini_ance.measures.compare import BM25
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.storage.files import copy_whole, sha256_json

RANKINGS = "rankings"
log = logging.getLogger(__name__)


class Wanted(NamedTuple):
    """A ranking by BM25, or after it by RM3, of a split's queries."""

    split: str
    hits: int
    rm3: bool = False


def for_training(recipe: Recipe) -> Wanted | None:
    """What sources draw from, or what is found live is compared with, where one does."""
    needed = recipe.bm25 and any(BM25 in source.needs or source.live for source in recipe.sources)
    return Wanted(recipe.train_split.name, recipe.bm25.hits) if needed else None


def for_closing(recipe: Recipe) -> list[Wanted]:
    """Those of the closing table's rows without training, split by split."""
    rm3 = [] if recipe.bm25 is None else [False, True] if recipe.bm25.rm3 else [False]
    return [Wanted(split, recipe.test.hits, of_rm3) for of_rm3 in rm3 for split in recipe.test.split]


def write_rankings(recipe: Recipe, collection: Collection, outputs: Mapping[Path, Wanted]) -> None:
    """The rankings as files of their own, whole or not there; those that are there stay."""
    missing = {output: one for output, one in outputs.items() if not output.exists()}
    for kept, output in zip(rankings(recipe, collection, list(missing.values())), missing, strict=True):
        output.parent.mkdir(parents=True, exist_ok=True)
        copy_whole(kept, output)


def rankings(recipe: Recipe, collection: Collection, wanted: Sequence[Wanted]) -> list[Path]:
    """Where each lies in the cache, as a TREC run. Those that it lacks are made now, in one go; so is the index, once for each collection.

    Raises RuntimeError as `pyserini_bridge.bm25.retrieve` does.
    """
    places = [_place(recipe, collection, one) for one in wanted]
    missing = {place: one for place, one in zip(places, wanted, strict=True) if not place.exists()}
    if missing:
        _retrieve(recipe, collection, missing)
    elif places:
        log.info("BM25: %d rankings are in %s", len(places), places[0].parent)
    return places


def lies_in(recipe: Recipe, collection: Collection) -> list[Path]:
    """What of it is in the cache: the index, where it is built, and rankings."""
    return [*[bm25_index(recipe, collection)] * (recipe.bm25.index == "build"), recipe.cache / BM25 / RANKINGS]


def bm25_index(recipe: Recipe, collection: Collection) -> Path:
    """Where BM25's index of the documents lies: the folder that the recipe names, or where it is once it has been built, with document
    vectors where RM3 needs them.
    """
    if recipe.bm25 and recipe.bm25.index != "build":
        return Path(recipe.bm25.index)
    return recipe.cache / BM25 / (collection.documents.digest + ("-docvectors" if recipe.bm25 and recipe.bm25.rm3 else ""))


def _retrieve(recipe: Recipe, collection: Collection, missing: Mapping[Path, Wanted]) -> None:
    from pyserini_ance.pyserini_bridge.bm25 import Ranking, retrieve

    documents = collection.documents
    records = chain.from_iterable(documents.blocks(STRINGS_PER_BLOCK))
    contents = ((id, "\n".join(filter(None, record.values()))) for id, record in zip(documents.ids, records, strict=True))
    asked = [Ranking(_id_and_text(collection.split(one.split).queries), one.hits, place, one.rm3) for place, one in missing.items()]
    retrieve(contents, asked, recipe.bm25, bm25_index(recipe, collection), len(documents))


def _place(recipe: Recipe, collection: Collection, one: Wanted) -> Path:
    settings, queries = recipe.bm25, collection.split(one.split).queries.digest
    told = {"index": _identity(recipe, collection), "queries": queries, "k1": settings.k1, "b": settings.b, "hits": one.hits}
    told |= {"rm3": settings.rm3.model_dump() if one.rm3 else None, "pyserini": version("pyserini")}
    return recipe.cache / BM25 / RANKINGS / f"{sha256_json(told)[:32]}.trec"


def _identity(recipe: Recipe, collection: Collection) -> list:
    """Of what is searched: the documents, a folder as it stands, or a prebuilt index, whose name stands for one thing."""
    if recipe.bm25.index == "build":
        return [collection.documents.digest]
    if not (folder := Path(recipe.bm25.index)).is_dir():
        return [recipe.bm25.index]
    return [str(folder.absolute()), *sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in folder.iterdir())]


def _id_and_text(queries: Texts) -> list[tuple[str, str]]:
    return list(zip(queries.ids, queries.columns["text"], strict=True))
