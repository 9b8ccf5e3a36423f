"""Prepare all data of a recipe ahead of training, and report what was read, its size and its time."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.collection_cache import collection_folder
from pyserini_ance.data.formats.builder import DOCUMENTS
from pyserini_ance.data.formats.files import SplitCounts, input_files
from pyserini_ance.evaluation.legends import legend, table_with_legend
from pyserini_ance.evaluation.tables import table
from pyserini_ance.pipeline.bm25_rankings import (
    bm25_for_evaluation,
    bm25_for_training,
    cached_folders,
    cached_rankings,
)
from pyserini_ance.pipeline.initial_weights import describe_initial_weights
from pyserini_ance.pipeline.preparation import (
    TokenizedTexts,
    blank_warning,
    check_tools,
    read_rankings,
    recipe_data,
    stored_collection,
    tokenize,
    tokenized_texts,
)
from pyserini_ance.recipe.models import Recipe

COUNT_COLUMNS = [
    "data",
    "read",
    "used",
    "judgments",
    "tokens",
    "median tokens",
    "cut",
    "skipped",
    "published",
]
COUNT_LEGEND = (
    "used: documents with text; queries with a relevant document, of a split without judgments all",
    "cut: share of the texts that are longer than what the encoder reads, and how many tokens that is",
    "published: counts by the paper or publisher",
)
STEP_COLUMNS = ["step", "seconds", "MiB", "where"]
STEP_LEGEND = "MiB, where: what the step's folder in the cache holds now; runs share it"
MIB = 1 << 20


def prepare_data(recipe: Recipe) -> str:
    """Read and tokenize the data and rank it by BM25, into the cache.

    Returns tables of what was read, next to the published counts, and of the time and disk that it took.
    Raises FileNotFoundError with all missing files, before anything is read.
    """
    input_files(recipe_data(recipe))
    check_tools(recipe)
    steps = Steps()
    collection = steps.run("reading and checking", lambda: stored_collection(recipe))
    steps.add_output(collection_folder(recipe.cache, collection.digest))
    if any(component.files for source in recipe.sources for component in source.components):
        steps.run("rankings of negatives", lambda: read_rankings(recipe, collection))
    data = steps.run("tokens", lambda: tokenize(recipe, collection))
    tokenized = tokenized_texts(recipe, collection)
    steps.add_output(*(texts.folder for texts in tokenized.values()))
    if recipe.bm25:
        for_training = bm25_for_training(recipe)
        requests = [*([for_training] if for_training else []), *bm25_for_evaluation(recipe)]
        steps.run("BM25", lambda: cached_rankings(recipe, collection, requests))
        steps.add_output(*cached_folders(recipe, collection))
    warnings = [*count_warnings(recipe, collection), *describe_initial_weights(recipe)]
    if blank := blank_warning(recipe, data):
        warnings.append(f"warning: documents: {blank}")
    sections = [
        table_with_legend(list(count_rows(recipe, collection, tokenized)), COUNT_COLUMNS, *COUNT_LEGEND),
        table(steps.rows, STEP_COLUMNS),
        legend([], STEP_LEGEND),
        "\n".join(warnings),
    ]
    return "\n\n".join(filter(None, sections))


class Steps:
    """The steps of the preparation: their time, and the size and place of their output."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def run[T](self, name: str, work: Callable[[], T]) -> T:
        """Call `work` and record its time."""
        start = time.perf_counter()
        result = work()
        self.rows.append({"step": name, "seconds": time.perf_counter() - start})
        return result

    def add_output(self, *folders: Path) -> None:
        """Record the folders that the last step wrote; Pyserini keeps a prebuilt index in a folder of its
        own."""
        if not folders:
            return
        size = sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
        where = folders[0].parent if len(folders) > 1 else folders[0]
        self.rows[-1] |= {"MiB": round(size / MIB), "where": str(where)}


@dataclass(frozen=True)
class Counts:
    """The contents of a split's files: queries, queries with a relevant document (`used`), and judgments."""

    queries: int
    used: int
    judgments: int

    @classmethod
    def of(cls, collection: Collection, name: str) -> "Counts":
        split, skipped = collection.split(name), collection.skipped
        kept, judgments = len(split.queries), len(split.qrels.rows)
        used = len(split.known_positives("query").anchors) if split.is_judged else kept
        prefix = f"{name} judgments of "
        skipped_judgments = sum(count for what, count in skipped.items() if what.startswith(prefix))
        queries = kept + skipped.get(f"{name} queries without positives", 0)
        return cls(queries, used, judgments + skipped_judgments)

    def compare(self, published: SplitCounts) -> Iterator[tuple[str, int, int]]:
        """What is counted, the count here and the published one; unpublished counts are skipped."""
        texts = {"queries": "queries", "used": "queries with a relevant document", "judgments": "judgments"}
        for key, text in texts.items():
            if (expected := getattr(published, key)) is not None:
                yield text, getattr(self, key), expected


def count_rows(
    recipe: Recipe, collection: Collection, tokenized: Mapping[str, TokenizedTexts]
) -> Iterator[dict[str, str | None]]:
    """A row of the table for the documents, and one for each split."""
    official = recipe.data.official
    without_text = collection.skipped.get(DOCUMENTS, 0)
    yield {
        "data": "documents",
        "read": f"{len(collection.documents) + without_text:,}",
        "used": f"{len(collection.documents):,}",
        "skipped": f"{without_text:,} {DOCUMENTS}" if without_text else None,
        "published": f"{official.documents:,} documents" if official.documents else None,
        **_token_cells(tokenized["documents"]),
    }
    for name in collection.splits:
        counts, published = Counts.of(collection, name), recipe.data.published_counts(name)
        skipped = [
            f"{count:,} {what.removeprefix(f'{name} ')}"
            for what, count in collection.skipped.items()
            if what.startswith(f"{name} ")
        ]
        expected = [f"{count:,} {what}" for what, _, count in counts.compare(published)]
        yield {
            "data": name,
            "read": f"{counts.queries:,}",
            "used": f"{counts.used:,}",
            "judgments": f"{counts.judgments:,}",
            "skipped": ", ".join(skipped) or None,
            "published": ", ".join(expected) or None,
            **_token_cells(tokenized[name]),
        }


def _token_cells(texts: TokenizedTexts) -> dict[str, str]:
    """`cut`: the share of texts that are longer than the encoder reads, and the length that it reads."""
    truncation = texts.truncation
    return {
        "tokens": f"{texts.tokens:,}",
        "median tokens": f"{truncation.median_tokens:,}",
        "cut": f"{truncation.share} at {truncation.limit}",
    }


def count_warnings(recipe: Recipe, collection: Collection) -> Iterator[str]:
    """A warning for each count that differs from the published one; invalid data is refused earlier."""
    official = recipe.data.official
    comparisons = []
    if official.documents:
        read = len(collection.documents) + collection.skipped.get(DOCUMENTS, 0)
        comparisons.append(("documents", "documents", read, official.documents))
    for name in official.splits:
        if name in collection.splits:
            published = recipe.data.published_counts(name)
            comparisons += [(name, *counts) for counts in Counts.of(collection, name).compare(published)]
    for name, what, count, expected in comparisons:
        if count != expected:
            question = (
                "was a download, or its unpacking, interrupted?"
                if count < expected
                else "is it another edition, or are two files concatenated?"
            )
            yield f"warning: {name}: {count:,} {what} were read, {expected:,} are published; {question}"
