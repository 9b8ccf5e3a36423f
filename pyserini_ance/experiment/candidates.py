"""Candidates: which documents of a ranking the closing table has a model put in another order, and the order that scores give them."""

from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Split, Texts
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.rankings import read_ranking
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.test import Rerank


def candidates_file(rerank: Rerank, split: str) -> Path | None:
    """The ranking that the recipe names; None for BM25's. Raises FileNotFoundError when it is not there."""
    return find_file(rerank.file, f"test.rerank.{split}.file") if rerank.file else None


def read_candidates(rerank: Rerank, split: Split, documents: Texts, bm25: Path) -> np.ndarray:
    """(Q, hits) int32: the first documents of the ranking for each query of the split, PADDING after the last. `bm25` is BM25's.

    Raises ValueError for a document that the collection lacks, and for a ranking of none of these queries.
    """
    return read_ranking(candidates_file(rerank, split.name) or bm25, split, documents, rerank.hits).found


def best_of_each(scores: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores (Q, k) and rows (Q, k) by falling score, then by rising row, as a search orders them; PADDING comes last."""
    order = np.lexsort((rows, -np.where(rows == PADDING, -np.inf, scores)), axis=-1)
    return np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)
