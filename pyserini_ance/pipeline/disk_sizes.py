"""How much disk a run's rankings, metrics, indexes and cache will take, before it runs: for the plan."""

from collections.abc import Sequence

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.collection_cache import collection_folder
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.string_arrays import Strings
from pyserini_ance.evaluation.tables import BM25, BM25_RM3, HYBRID, UNTRAINED
from pyserini_ance.negatives.live import Live
from pyserini_ance.pipeline.bm25_rankings import bm25_for_evaluation, bm25_for_training
from pyserini_ance.pipeline.forecast import times_mined
from pyserini_ance.pipeline.preparation import tokenized_texts
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.vectors.faiss_index import FLAT, factory_and_search, index_bytes

SAMPLED_IDS = 1000
LUCENE_BYTES = 1 << 16  # of an index's own files, however few documents it has
NUMBERS_BYTES = 20  # of a line: a rank of up to 4 digits, a score of 6 decimals, `Q0`, blanks
RANK_BYTES = 4  # int32


def ranking_bytes(recipe: Recipe, data: PreparedData) -> int:
    """Bytes of all rankings in the run directory: those of the table's rows, of BM25 for the training
    queries, and the copies of the final ranking and of the topics."""
    test, rows = recipe.final_evaluation, recipe.final_evaluation.rows
    *earlier, last = recipe.stages
    models = [
        *([UNTRAINED] if UNTRAINED in rows else []),
        *(recipe.external_starts if "start" in rows else []),
        *(earlier if "stages" in rows else []),
        last,
    ]
    sparse = [BM25_RM3 if request.rm3 else BM25 for request in bm25_for_evaluation(recipe)]
    sparse += [HYBRID] * (recipe.bm25 is not None and "hybrid" in rows)
    indexed = [f"{model}+{index}" for model in models for index in test.indexes]
    total = bm25_training_bytes(recipe, data)
    for name in test.split:
        split = data.collection.split(name)
        of_row = [(row, test.hits) for row in (*models, last, *indexed, *dict.fromkeys(sparse))]
        if name in test.reranked:
            of_row += [(row, test.rerank[name].hits) for row in models]
        total += sum(_bytes(data, split.queries.ids, len(split.queries), hits, row) for row, hits in of_row)
        if test.query_measures_of(name):
            documents = len(split.known_positives("document").anchors)
            hits = min(test.hits, len(split.queries))
            total += sum(_bytes(data, split.queries.ids, documents, hits, row) for row in models)
    return total


def bm25_training_bytes(recipe: Recipe, data: PreparedData) -> int:
    """Bytes of BM25's ranking of the training queries, which a run has and the cache has once more; 0 if no
    source needs it."""
    request = bm25_for_training(recipe)
    if request is None:
        return 0
    return _bytes(data, data.split.queries.ids, len(data.split.queries), request.hits, BM25)


def metrics_bytes(recipe: Recipe, data: PreparedData) -> int:
    """Bytes of the positives' ranks: an array next to each table, and one of the last stage's result."""
    mined = [
        times_mined(stage, source)
        for stage in recipe.stages.values()
        for source in stage.sources
        if source.is_mined
    ]
    of_teachers = sum(len(teacher.negatives) for teacher in recipe.teachers.values())
    return (sum(mined) + of_teachers + 1) * len(data.split.queries) * RANK_BYTES


def factory_index_bytes(recipe: Recipe, passages: int, dimension: int) -> int:
    """An upper bound on the bytes of all indexes of Faiss factory strings that a run has at any time.

    They are those that a stage's `live` sources search and those of `final_evaluation.indexes`, and once more
    the ones before them, which are removed later. An exact index is in the vectors.
    """
    of_stages = [
        {source.index for source in stage.components if isinstance(source, Live)}
        for stage in recipe.stages.values()
    ]
    at_once = [set(recipe.final_evaluation.indexes), *of_stages]
    sizes = [
        sum(index_bytes(passages, dimension, factory_and_search(index)[0]) for index in indexes - {FLAT})
        for indexes in at_once
    ]
    return 2 * max(sizes)


def bm25_index_bytes(recipe: Recipe, documents: Texts) -> int:
    """An upper bound on the bytes of the BM25 index that the cache gets; 0 if the recipe names an index.

    Lucene writes 0.11 to 0.42 bytes for a byte of text (8 collections of 240 to 33,171 documents). The bound
    is 1, and 1 more for the terms of each document, which RM3 needs; and each id twice.
    """
    if recipe.bm25 is None or recipe.bm25.index != "build":
        return 0
    text = sum(map(_text_bytes, documents.columns.values()))
    return LUCENE_BYTES + text * (2 if recipe.bm25.rm3 else 1) + 2 * _text_bytes(documents.ids)


def _text_bytes(texts: Sequence[str]) -> int:
    return len(texts.text) if isinstance(texts, Strings) else sum(len(text.encode()) for text in texts)


def cache_bytes(recipe: Recipe, data: PreparedData) -> int:
    """Bytes that the recipe's texts and tokens take in the cache, where they are by now."""
    folders = {texts.folder for texts in tokenized_texts(recipe, data.collection).values()}
    folders.add(collection_folder(recipe.cache, data.collection.digest))
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())


def _bytes(data: PreparedData, query_ids: Sequence[str], queries: int, hits: int, tag: str) -> int:
    """Bytes of a TREC run of `queries` x `hits` lines, by the mean length of ids."""
    lines = queries * min(hits, len(data.collection.documents))
    line = _mean_length(query_ids) + _mean_length(data.collection.documents.ids) + len(tag) + NUMBERS_BYTES
    return round(lines * line)


def _mean_length(ids: Sequence[str]) -> float:
    """The mean length of ids in bytes, over an even sample."""
    sample = range(0, len(ids), max(1, len(ids) // SAMPLED_IDS))
    return sum(len(ids[position].encode()) for position in sample) / len(sample)
