"""Prepare all data of a recipe ahead of training, and report what was read, its size and its time."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.collection_cache import collection_folder
from pyserini_ance.data.formats.files import input_files
from pyserini_ance.data.formats.format import DOCUMENTS
from pyserini_ance.data.token_store import token_lengths
from pyserini_ance.encoders.tokenization import count_cut
from pyserini_ance.evaluation.legends import legend, table_with_legend
from pyserini_ance.evaluation.tables import BM25, table
from pyserini_ance.pipeline import bm25_rankings, preparation
from pyserini_ance.pipeline.initial_weights import describe_initial_weights
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

# What is counted in a part of the data: name, count, and the published count, if any.
Count = tuple[str, int, int | None]


def prepare_data(recipe: Recipe) -> str:
    """Read and tokenize the data and rank it by BM25, into the cache.

    Returns tables of what was read, next to the published counts, and of the time and disk that it took.
    Raises FileNotFoundError with all missing files, before anything is read.
    """
    input_files(preparation.recipe_data(recipe))
    preparation.check_tools(recipe)
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

    collection = step("reading and checking", lambda: preparation.stored_collection(recipe))
    add_output(collection_folder(recipe.cache, collection.digest))
    if any(component.files for source in recipe.sources for component in source.components):
        step("rankings of negatives", lambda: preparation.read_rankings(recipe, collection))
    data = step("tokens", lambda: preparation.tokenize(recipe, collection))
    tokenizer = preparation.InitialTokenizer(recipe.encoder, recipe.cache)
    folders = {"documents": tokenizer.folder("document", collection.documents)}
    folders |= {name: tokenizer.folder("query", one.queries) for name, one in collection.splits.items()}
    add_output(*folders.values())
    if bm25 := recipe.bm25:
        for_training = bm25_rankings.bm25_for_training(recipe)
        requests = [*filter(None, [for_training]), *bm25_rankings.bm25_for_evaluation(recipe)]
        step("BM25", lambda: bm25_rankings.cached_rankings(bm25, recipe.cache, collection, requests))
        # Pyserini keeps a prebuilt index in a folder of its own.
        index = [bm25_rankings.bm25_index(bm25, recipe.cache, collection)] if bm25.index == "build" else []
        add_output(*index, recipe.cache / BM25 / bm25_rankings.RANKINGS)
    counts = counts_of(recipe, collection)
    rows = list(_count_rows(counts, collection))
    for row, folder in zip(rows, folders.values(), strict=True):
        lengths = token_lengths(folder)
        settings = recipe.encoder.tokenization.side("document" if row["data"] == "documents" else "query")
        cut, limit = count_cut(lengths, tokenizer.specials, settings)
        percent = f"{100 * cut / len(lengths):.1f}"
        row["tokens"] = f"{lengths.sum():,}"
        row["median tokens"] = f"{int(np.median(lengths)) + sum(map(len, tokenizer.specials[:2])):,}"
        row["cut"] = f"{'below 0.1' if cut and percent == '0.0' else percent} % at {limit}"
    warnings = [*_count_warnings(counts), *describe_initial_weights(recipe)]
    if blank := preparation.blank_warning(recipe.encoder, data):
        warnings.append(f"warning: documents: {blank}")
    sections = [
        table_with_legend(rows, COUNT_COLUMNS, *COUNT_LEGEND),
        table(steps, STEP_COLUMNS),
        legend([], STEP_LEGEND),
        "\n".join(warnings),
    ]
    return "\n\n".join(filter(None, sections))


def counts_of(recipe: Recipe, collection: Collection) -> dict[str, list[Count]]:
    """The contents of the files, by `documents` and by split.

    What was skipped counts as read.
    """
    skipped = collection.skipped
    documents = len(collection.documents) + skipped.get(DOCUMENTS, 0)
    counts: dict[str, list[Count]] = {
        "documents": [("documents", documents, recipe.data.official.documents or None)]
    }
    for name, split in collection.splits.items():
        kept = len(split.queries)
        published = recipe.data.published_counts(name)
        used = len(split.known_positives("query").anchors) if split.is_judged else kept
        left_out = sum(count for what, count in skipped.items() if what.startswith(f"{name} judgments of "))
        counts[name] = [
            ("queries", kept + skipped.get(f"{name} queries without positives", 0), published.queries),
            ("queries with a relevant document", used, published.used),
            ("judgments", len(split.qrels.rows) + left_out, published.judgments),
        ]
    return counts


def _count_rows(counts: Mapping[str, list[Count]], collection: Collection) -> Iterator[dict[str, str | None]]:
    """A row of the table for the documents, and one for each split."""
    for name, counted in counts.items():
        numbers = [f"{count:,}" for _, count, _ in counted]
        if name == "documents":
            numbers.append(f"{len(collection.documents):,}")
            skipped = [f"{count:,} {what}" for what, count in collection.skipped.items() if what == DOCUMENTS]
        else:
            prefix = f"{name} "
            skipped = [
                f"{count:,} {what.removeprefix(prefix)}"
                for what, count in collection.skipped.items()
                if what.startswith(prefix)
            ]
        published = [f"{count:,} {what}" for what, _, count in counted if count is not None]
        yield {
            "data": name,
            **dict(zip(("read", "used", "judgments"), numbers, strict=False)),
            "skipped": ", ".join(skipped) or None,
            "published": ", ".join(published) or None,
        }


def _count_warnings(counts: Mapping[str, list[Count]]) -> Iterator[str]:
    """A warning for each count that differs from the published one; invalid data is refused earlier."""
    for name, counted in counts.items():
        for what, count, expected in counted:
            if expected is not None and count != expected:
                question = (
                    "was a download, or its unpacking, interrupted?"
                    if count < expected
                    else "is it another edition, or are two files concatenated?"
                )
                yield f"warning: {name}: {count:,} {what} were read, {expected:,} are published; {question}"
