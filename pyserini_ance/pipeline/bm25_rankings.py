"""BM25 rankings in the cache: each is made once per combination of documents, queries and settings, for all
runs.

From these, or from another ranking, come the candidates that `final_evaluation.rerank` reranks.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyserini_ance.data.collection import Collection, Split, Texts
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.rankings import check_ordered, read_ranking
from pyserini_ance.data.texts import ROWS_PER_BATCH
from pyserini_ance.evaluation.tables import BM25, BM25_RM3
from pyserini_ance.recipe.evaluation_settings import RERANK_HITS
from pyserini_ance.recipe.models import Bm25, Recipe
from pyserini_ance.storage.files import beside, copy_whole, file_state, remove_leftovers, sha256_json
from pyserini_ance.storage.locks import locked

RANKINGS = "rankings"
log = logging.getLogger(__name__)


class Bm25Request(NamedTuple):
    """A ranking of a split's queries by BM25, followed by RM3 if `rm3`."""

    split: str
    hits: int
    rm3: bool = False


def bm25_for_training(recipe: Recipe) -> Bm25Request | None:
    """The ranking that sources draw from or compare live searches with, or that a teacher scores by; else
    None."""
    live = any(source.live for source in recipe.sources)
    if recipe.bm25 is None or not (live or BM25 in recipe.training_needs):
        return None
    return Bm25Request(recipe.train_name, recipe.bm25.hits)


def bm25_for_evaluation(recipe: Recipe) -> dict[str, list[Bm25Request]]:
    """The rankings, split by split, of the results table's rows without training: BM25's, then RM3's."""
    test = recipe.final_evaluation
    rows = [row for row in (BM25, BM25_RM3) if recipe.bm25 and row in test.rows]
    return {row: [Bm25Request(split, test.hits, row == BM25_RM3) for split in test.split] for row in rows}


def write_rankings(recipe: Recipe, collection: Collection, outputs: Mapping[Path, Bm25Request]) -> None:
    """Copy the rankings to `outputs`, each atomically; existing files stay as they are."""
    missing = {output: request for output, request in outputs.items() if not output.exists()}
    if not missing:
        return
    assert recipe.bm25 is not None
    cached = cached_rankings(recipe.bm25, recipe.cache, collection, list(missing.values()))
    for ranking, output in zip(cached, missing, strict=True):
        output.parent.mkdir(parents=True, exist_ok=True)
        copy_whole(ranking, output)


def cached_rankings(
    bm25: Bm25, cache: Path, collection: Collection, requests: Sequence[Bm25Request]
) -> list[Path]:
    """The TREC run of each request, in the cache.

    Missing rankings are made in one call, and the index once per collection. Of several processes that need
    the same rankings one makes them while the others wait. Raises RuntimeError as
    `pyserini_bridge.bm25.retrieve` does.
    """
    paths = [_path(bm25, cache, collection, request) for request in requests]
    by_path = dict(zip(paths, requests, strict=True))
    missing = [path for path in by_path if not path.exists()]
    if missing:
        from pyserini_ance.pyserini_bridge.bm25 import Bm25Job, retrieve

        work = sha256_json(sorted(path.stem for path in missing))[:32]
        (cache / BM25).mkdir(parents=True, exist_ok=True)
        with locked(beside(cache / BM25 / work, "writing"), what="BM25's rankings"):
            remove_leftovers(cache / BM25)
            wanted = {path: request for path, request in by_path.items() if not path.exists()}
            jobs = []
            for path, request in wanted.items():
                queries = collection.split(request.split).queries
                texts = list(zip(queries.ids, queries.columns["text"], strict=True))
                jobs.append(Bm25Job(texts, request.hits, path, request.rm3, collection.ignore_identical_ids))
            if jobs:
                index = bm25_index(bm25, cache, collection, any(job.rm3 for job in jobs))
                retrieve(contents(collection.documents), jobs, bm25, index, len(collection.documents))
    elif paths:
        log.debug("BM25: found all rankings in %s", paths[0].parent)
    return paths


def bm25_index(bm25: Bm25, cache: Path, collection: Collection, rm3: bool = False) -> Path:
    """The folder of BM25's index: the one that the settings name, or that of the cache, whether built yet or
    not.

    RM3 needs an index with document vectors, which serves BM25 too.
    """
    if bm25.index != "build":
        return Path(bm25.index).expanduser()
    expanded = cache / BM25 / f"{collection.documents.digest}-docvectors"
    return expanded if rm3 or expanded.exists() else cache / BM25 / collection.documents.digest


def contents(documents: Texts) -> Iterator[tuple[str, str]]:
    """The id and the text of each document, its fields joined by line breaks."""
    records = chain.from_iterable(documents.blocks(ROWS_PER_BATCH))
    for id, record in zip(documents.ids, records, strict=True):
        yield id, "\n".join(filter(None, record.values()))


def _path(bm25: Bm25, cache: Path, collection: Collection, request: Bm25Request) -> Path:
    """The file of a ranking, by what it depends on: the searched documents, the files of a folder, or the
    name of a prebuilt index; queries; settings."""
    from pyserini_ance.pyserini_bridge.bm25 import MAX_TERMS

    folder = Path(bm25.index).expanduser()
    index: list[Any] = [bm25.index]
    if bm25.index == "build":
        index = [collection.documents.digest]
    elif folder.is_dir():
        files = ([file.name, *file_state(file)] for file in folder.iterdir())
        index = [str(folder.absolute()), *sorted(files)]
    queries = collection.split(request.split).queries
    key: dict[str, Any] = {"index": index, "queries": queries.digest, "pyserini": version("pyserini")}
    key |= {"terms": MAX_TERMS} if any(len(text) > MAX_TERMS for text in queries.columns["text"]) else {}
    key |= {"k1": bm25.k1, "b": bm25.b, "hits": request.hits, "rm3": request.rm3}
    if collection.ignore_identical_ids:
        key["ignore_identical_ids"] = True
    return cache / BM25 / RANKINGS / f"{sha256_json(key)[:32]}.trec"


def read_candidates(ranking: Path, split: Split, collection: Collection) -> np.ndarray:
    """The first documents of the ranking for each query of the split: (Q, 100) int32, PADDING after the last.

    Raises FileNotFoundError if the file is missing, ValueError if it is in no order, if the collection lacks
    a document, or if the ranking has none of the queries.
    """
    file = find_file(ranking, f"final_evaluation.rerank.{split.name}")
    check_ordered(file)
    return read_ranking(file, split, collection, RERANK_HITS).rows
