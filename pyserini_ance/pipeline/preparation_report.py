"""Prepare all data of a recipe ahead of training, and report what was read, its size and its time."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.collection_cache import collection_folder
from pyserini_ance.data.formats.files import input_files
from pyserini_ance.data.formats.format import DOCUMENTS
from pyserini_ance.evaluation.legends import legend, table_with_legend
from pyserini_ance.evaluation.tables import BM25, table
from pyserini_ance.pipeline.bm25_rankings import (
    RANKINGS,
    bm25_for_evaluation,
    bm25_for_training,
    bm25_index,
    cached_rankings,
)
from pyserini_ance.pipeline.initial_weights import describe_initial_weights
from pyserini_ance.pipeline.preparation import (
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
    steps: list[dict[str, Any]] = []

    def step[T](name: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = work()
        steps.append({"step": name, "seconds": time.perf_counter() - start})
        return result

    def add_output(*folders: Path) -> None:
        """Record the folders that the last step wrote."""
        files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
        where = folders[0].parent if len(folders) > 1 else folders[0]
        steps[-1] |= {"MiB": round(sum(path.stat().st_size for path in files) / MIB), "where": str(where)}

    collection = step("reading and checking", lambda: stored_collection(recipe))
    add_output(collection_folder(recipe.cache, collection.digest))
    if any(component.files for source in recipe.sources for component in source.components):
        step("rankings of negatives", lambda: read_rankings(recipe, collection))
    data = step("tokens", lambda: tokenize(recipe, collection))
    tokenized = tokenized_texts(recipe, collection)
    add_output(*(texts.folder for texts in tokenized.values()))
    if bm25 := recipe.bm25:
        for_training = bm25_for_training(recipe)
        requests = [*([for_training] if for_training else []), *bm25_for_evaluation(recipe)]
        step("BM25", lambda: cached_rankings(bm25, recipe.cache, collection, requests))
        # Pyserini keeps a prebuilt index in a folder of its own.
        index = [bm25_index(bm25, recipe.cache, collection)] if bm25.index == "build" else []
        add_output(*index, recipe.cache / BM25 / RANKINGS)
    rows = list(count_rows(recipe, collection))
    for row in rows:
        texts = tokenized[row["data"]]
        row["tokens"], row["median tokens"] = f"{texts.tokens:,}", f"{texts.truncation.median_tokens:,}"
        row["cut"] = f"{texts.truncation.share} at {texts.truncation.limit}"
    warnings = [*count_warnings(recipe, collection), *describe_initial_weights(recipe)]
    if blank := blank_warning(recipe.encoder, data):
        warnings.append(f"warning: documents: {blank}")
    sections = [
        table_with_legend(rows, COUNT_COLUMNS, *COUNT_LEGEND),
        table(steps, STEP_COLUMNS),
        legend([], STEP_LEGEND),
        "\n".join(warnings),
    ]
    return "\n\n".join(filter(None, sections))


def counts_of(recipe: Recipe, collection: Collection, name: str) -> Iterator[tuple[str, int, int | None]]:
    """The contents of a split's files: what is counted, the count here and the published one, if any.

    Counted are queries, queries with a relevant document, and judgments.
    """
    split, skipped = collection.split(name), collection.skipped
    published = recipe.data.published_counts(name)
    kept, prefix = len(split.queries), f"{name} judgments of "
    judgments = sum(count for what, count in skipped.items() if what.startswith(prefix))
    used = len(split.known_positives("query").anchors) if split.is_judged else kept
    yield "queries", kept + skipped.get(f"{name} queries without positives", 0), published.queries
    yield "queries with a relevant document", used, published.used
    yield "judgments", len(split.qrels.rows) + judgments, published.judgments


def count_rows(recipe: Recipe, collection: Collection) -> Iterator[dict[str, Any]]:
    """A row of the table for the documents, and one for each split."""
    official = recipe.data.official
    without_text = collection.skipped.get(DOCUMENTS, 0)
    yield {
        "data": "documents",
        "read": f"{len(collection.documents) + without_text:,}",
        "used": f"{len(collection.documents):,}",
        "skipped": f"{without_text:,} {DOCUMENTS}" if without_text else None,
        "published": f"{official.documents:,} documents" if official.documents else None,
    }
    for name in collection.splits:
        counts = list(counts_of(recipe, collection, name))
        skipped = [
            f"{count:,} {what.removeprefix(f'{name} ')}"
            for what, count in collection.skipped.items()
            if what.startswith(f"{name} ")
        ]
        expected = [f"{count:,} {what}" for what, _, count in counts if count is not None]
        columns = zip(("read", "used", "judgments"), counts, strict=True)
        yield {
            "data": name,
            **{column: f"{count:,}" for column, (_, count, _) in columns},
            "skipped": ", ".join(skipped) or None,
            "published": ", ".join(expected) or None,
        }


def count_warnings(recipe: Recipe, collection: Collection) -> Iterator[str]:
    """A warning for each count that differs from the published one; invalid data is refused earlier."""
    official = recipe.data.official
    comparisons: list[tuple[str, str, int, int | None]] = []
    if official.documents:
        read = len(collection.documents) + collection.skipped.get(DOCUMENTS, 0)
        comparisons.append(("documents", "documents", read, official.documents))
    for name in official.splits:
        if name in collection.splits:
            comparisons += [(name, *counts) for counts in counts_of(recipe, collection, name)]
    for name, what, count, expected in comparisons:
        if expected is not None and count != expected:
            question = (
                "was a download, or its unpacking, interrupted?"
                if count < expected
                else "is it another edition, or are two files concatenated?"
            )
            yield f"warning: {name}: {count:,} {what} were read, {expected:,} are published; {question}"
