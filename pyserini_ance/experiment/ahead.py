"""Preparing ahead: all that training reads, checked, counted and put into the cache, where it finds it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.formats.official import SplitCounts, found_files
from pyserini_ance.data.stored import collection_folder
from pyserini_ance.data.token_store import count_tokens
from pyserini_ance.encoders.checkpoint import start_tokenizer
from pyserini_ance.encoders.tokenization import TextTokenizer
from pyserini_ance.experiment.bm25 import for_closing, for_training, lies_in, rankings
from pyserini_ance.experiment.prepare import check_tools, data_of, read_rankings, stored_collection, token_folder, tokenise
from pyserini_ance.experiment.starts import describe_starts
from pyserini_ance.measures.table import table
from pyserini_ance.recipe.models import Recipe

COUNTED = ["part", "read", "used", "judgments", "tokens", "left out", "published"]
DONE = ["step", "seconds", "MiB", "where"]
MIB = 1 << 20


def prepare_ahead(recipe: Recipe) -> str:
    """Read, tokenise, and rank by BM25; what was read, beside what is published, and what it took.

    Raises FileNotFoundError that tells all files that are missing, before anything is read.
    """
    found_files(data_of(recipe))
    check_tools(recipe)
    steps = Steps()
    collection = steps.do("reading and checking", lambda: stored_collection(recipe))
    steps.lies_in(collection_folder(recipe.cache, collection.digest))
    if any(leaf.files for stage in recipe.stages.values() for leaf in stage.leaves):
        steps.do("rankings of negatives", lambda: read_rankings(recipe, collection))
    steps.do("tokens", lambda: tokenise(recipe, collection) and None)
    folders = token_folders(recipe, collection)
    steps.lies_in(*folders.values())
    if recipe.bm25:
        steps.do("BM25", lambda: rankings(recipe, collection, [*filter(None, [for_training(recipe)]), *for_closing(recipe)]))
        steps.lies_in(*lies_in(recipe, collection))
    rows = [*counted(recipe, collection, folders)]
    parts = [table(rows, COUNTED), table(steps.rows, DONE), "\n".join([*differences(recipe, collection), *describe_starts(recipe)])]
    return "\n\n".join(filter(None, parts))


class Steps:
    """What was done, how long it took, and what it left where."""

    def __init__(self):
        self.rows: list[dict] = []

    def do[Made](self, name: str, make) -> Made:
        start = time.perf_counter()
        made = make()
        self.rows.append({"step": name, "seconds": time.perf_counter() - start})
        return made

    def lies_in(self, *folders: Path) -> None:
        """The last step's result; an index of Pyserini's own lies where it keeps such."""
        size = sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
        self.rows[-1] |= {"MiB": round(size / MIB), "where": str(folders[0].parent if len(folders) > 1 else folders[0])} if folders else {}


def token_folders(recipe: Recipe, collection: Collection) -> dict[str, Path]:
    """By what is in them: documents, and each split's queries."""
    tokenizer: TextTokenizer = start_tokenizer(recipe.encoder)
    sides = {"documents": ("document", collection.documents)}
    sides |= {name: ("query", split.queries) for name, split in collection.splits.items()}
    return {name: token_folder(recipe.cache, tokenizer, *of) for name, of in sides.items()}


@dataclass(frozen=True)
class Counts:
    """What the files of a split hold."""

    queries: int
    used: int
    judgments: int

    @classmethod
    def of(cls, collection: Collection, name: str) -> "Counts":
        split, skipped = collection.split(name), collection.skipped
        used, judgments = len(split.queries), len(split.qrels.rows)
        left = sum(count for what, count in skipped.items() if what.startswith(f"{name} judgments of "))
        return cls(used + skipped.get(f"{name} queries without positives", 0), used, judgments + left)

    def compared(self, published: SplitCounts) -> Iterator[tuple[str, int, int]]:
        """What was counted, here and by its publisher, where that is known."""
        named = {"queries": "queries", "used": "queries with a relevant document", "judgments": "judgments"}
        for key, what in named.items():
            if (expected := getattr(published, key)) is not None:
                yield what, getattr(self, key), expected


def counted(recipe: Recipe, collection: Collection, folders: dict[str, Path]) -> Iterator[dict]:
    """A row of the table for the documents, and one for each split."""
    official = recipe.data.official
    documents = {"read": f"{len(collection.documents):,}", "published": f"{official.documents:,} documents" if official.documents else None}
    yield {"part": "documents", **documents, "tokens": f"{count_tokens(folders['documents']):,}"}
    for name in collection.splits:
        found, published = Counts.of(collection, name), official.splits.get(name, SplitCounts())
        left = [f"{count:,} {what.removeprefix(f'{name} ')}" for what, count in collection.skipped.items() if what.startswith(f"{name} ")]
        numbers = {"read": found.queries, "used": found.used, "judgments": found.judgments, "tokens": count_tokens(folders[name])}
        told = ", ".join(f"{expected:,} {what}" for what, _, expected in found.compared(published))
        yield {"part": name, **{key: f"{n:,}" for key, n in numbers.items()}, "left out": ", ".join(left) or None, "published": told or None}


def differences(recipe: Recipe, collection: Collection) -> Iterator[str]:
    """A warning for each count that is not the published one. The reader itself has refused what it knows to be wrong."""
    official = recipe.data.official
    compared = [("documents", "documents", len(collection.documents), official.documents)] if official.documents else []
    for name, published in official.splits.items():
        if name in collection.splits:
            compared += [(name, *one) for one in Counts.of(collection, name).compared(published)]
    for part, what, found, expected in compared:
        if found != expected:
            why = "was a download, or its unpacking, cut short?" if found < expected else "is it another edition, or are two files put together?"
            yield f"warning: {part}: {found:,} {what} were read, {expected:,} are published; {why}"
