"""Prepare all data of a recipe ahead of training, and report what was read and how long it took."""

import time
from itertools import chain, pairwise

import numpy as np

from pyserini_ance.data.collection import Collection, Side, Texts
from pyserini_ance.data.formats.format import DOCUMENTS
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.encoders.tokenization import count_cut, count_cut_characters, describe_blank
from pyserini_ance.evaluation.tables import table_with_legend
from pyserini_ance.pipeline import bm25_rankings, preparation
from pyserini_ance.pipeline.data_checks import data_warnings
from pyserini_ance.pipeline.initial_weights import describe_initial_weights
from pyserini_ance.recipe.models import Recipe

COLUMNS = ["data", "read", "used", "judgments", "tokens", "median tokens", "cut", "skipped", "published"]
PARTS = ("reading and checking", "tokens", "BM25")  # whose seconds are shown
LEGEND = (
    "used: documents with text; queries with a relevant document, of a split without judgments all",
    "cut: share of the texts that are longer than what the encoder reads, and how many tokens that is",
    "published: counts by the paper or publisher",
)


def prepare_data(recipe: Recipe) -> str:
    """Read and tokenize the data and rank it by BM25, into the cache.

    Returns a table of what was read, next to the published counts, the seconds and the warnings. Raises
    FileNotFoundError with all missing files, before anything is read.
    """
    preparation.recipe_data(recipe).input_files()
    preparation.check_tools(recipe)
    begun = [time.perf_counter()]
    collection = preparation.stored_collection(recipe)
    preparation.read_rankings(recipe, collection)
    begun.append(time.perf_counter())
    data = preparation.tokenize(recipe, collection)
    begun.append(time.perf_counter())
    if bm25 := recipe.bm25:
        requests = [*filter(None, [bm25_rankings.bm25_for_training(recipe)])]
        requests += chain.from_iterable(bm25_rankings.bm25_for_evaluation(recipe).values())
        bm25_rankings.cached_rankings(bm25, recipe.cache, collection, requests)
        begun.append(time.perf_counter())
    spans = zip(PARTS, pairwise(begun), strict=False)
    seconds = [f"{part} {end - start:.1f}" for part, (start, end) in spans]
    tokenization = recipe.encoder.tokenization
    documents = data.documents.whole[0] if data.documents.whole else data.documents
    stores: dict[str, tuple[Side, Texts, TokenStore]] = {
        "documents": ("document", collection.documents, documents)
    }
    stores |= {one: ("query", split.queries, data.queries[one]) for one, split in collection.splits.items()}
    rows, warnings = [], []
    for name, (side, texts, tokens) in stores.items():
        counts, lengths = _counts(recipe, collection, name), np.diff(tokens.offsets)
        cut, limit = count_cut(lengths, tokens.specials, tokenization.side(side))
        parts = [f"{_percent(cut, len(texts))} at {limit}"]
        if at_characters := count_cut_characters(texts, side, tokenization):
            share = _percent(at_characters, len(texts))
            parts.append(f"{share} at {tokenization.max_characters:,} characters (max_characters)")
        numbers = [f"{count:,}" for count, _ in counts.values()]
        prefix = "" if name == "documents" else f"{name} "
        skipped = [
            f"{count:,} {what.removeprefix(prefix)}"
            for what, count in collection.skipped.items()
            if (what.startswith(prefix) if prefix else what == DOCUMENTS)
        ]
        rows.append(
            {
                "data": name,
                "read": numbers[0],
                "used": numbers[1] if prefix else f"{len(collection.documents):,}",
                "judgments": numbers[2] if prefix else None,
                "tokens": f"{lengths.sum():,}",
                "median tokens": f"{int(np.median(lengths)) + sum(map(len, tokens.specials[:2])):,}",
                "cut": ", ".join(parts),
                "skipped": ", ".join(skipped) or None,
                "published": ", ".join(f"{n:,} {what}" for what, (_, n) in counts.items() if n is not None)
                or None,
            }
        )
        for what, (count, expected) in counts.items():
            if expected is not None and count != expected:
                warnings.append(
                    f"warning: {name}: {count:,} {what} were read, {expected:,} are published; was a "
                    "download interrupted, or is it another edition?"
                )
    warnings += describe_initial_weights(recipe)
    if blank := describe_blank(collection.documents, data.blank_documents, tokenization.document.template):
        warnings.append(f"warning: documents: {blank}")
    warnings += [f"warning: {line}" for line in data_warnings(recipe, collection)]
    repeated = {name: len(texts.same) for name, (_, texts, _) in stores.items()}
    several = [f"{count:,} of {name}" for name, count in repeated.items() if count]
    copies = f"texts that occur several times: {', '.join(several) or 'none'}"
    table = table_with_legend(rows, COLUMNS, *LEGEND, copies)
    done = f"seconds: {', '.join(seconds)}; runs take the data from {recipe.cache}"
    return "\n\n".join(filter(None, [table, done, "\n".join(warnings)]))


def _percent(count: int, total: int) -> str:
    percent = f"{100 * count / total:.1f}"
    return f"{'below 0.1' if count and percent == '0.0' else percent} %"


def _counts(recipe: Recipe, collection: Collection, name: str) -> dict[str, tuple[int, int | None]]:
    """How much the files of `documents`, or of a split, hold, each with the published count, if any.

    What was skipped counts as read.
    """
    skipped = collection.skipped
    published = recipe.data.published
    if name == "documents":
        return {name: (len(collection.documents) + skipped.get(DOCUMENTS, 0), published(name))}
    split = collection.splits[name]
    kept = len(split.queries)
    used = len(split.known_positives("query").anchors) if split.is_judged else kept
    left_out = sum(count for what, count in skipped.items() if what.startswith(f"{name} judgments of "))
    without = sum(skipped.get(f"{name} queries without {what}", 0) for what in ("positives", "judgments"))
    return {
        "queries": (kept + without, published("queries", name)),
        "queries with a relevant document": (used, published("used", name)),
        "judgments": (len(split.qrels.rows) + left_out, published("judgments", name)),
    }
