"""Candidates of `final_evaluation.rerank`: the documents that a trained model reranks, and their order by
score."""

from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Split, Texts
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.ranking_builder import PADDING
from pyserini_ance.data.rankings import read_ranking
from pyserini_ance.recipe.evaluation_settings import Rerank


def candidates_file(rerank: Rerank, split: str) -> Path | None:
    """The ranking file that the recipe names; None for BM25's ranking.

    Raises FileNotFoundError if it is missing.
    """
    return find_file(rerank.file, f"final_evaluation.rerank.{split}.file") if rerank.file else None


def read_candidates(rerank: Rerank, split: Split, documents: Texts, bm25: Path) -> np.ndarray:
    """The first documents of the ranking for each query of the split: (Q, hits) int32, PADDING after the
    last.

    `bm25` is BM25's ranking. Raises ValueError if the collection lacks a document, or if the ranking has none
    of the queries.
    """
    return read_ranking(candidates_file(rerank, split.name) or bm25, split, documents, rerank.hits).rows


def sort_by_score(scores: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort scores (Q, k) and rows (Q, k) by falling score, ties by rising row, as a search does; PADDING
    comes last."""
    order = np.lexsort((rows, -np.where(rows == PADDING, -np.inf, scores)), axis=-1)
    return np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)
