"""A ranking builder: the top documents of each query, from hits in any order, with bounded memory."""

from array import array

import numpy as np

PADDING = -1
# Merging a block of this size takes 120 MB. If hits are grouped by query, larger blocks are not faster.
HITS_PER_BLOCK = 1 << 20


class RepeatedHit(ValueError):
    """The hit at line `number` repeats a document, or a rank, of the same query."""

    def __init__(self, number: int, query: int, document: int, score: float):
        super().__init__(f"line {number}: document {document} again for query {query}")
        self.number, self.query, self.document, self.score = number, query, document, score


class RankingBuilder:
    """Collect hits block by block and keep the `top_k` best documents of each query.

    rows: (queries, top_k) int32, document rows by falling score, PADDING at the end.
    scores: (queries, top_k) float64, -inf at the end. Ties stay in the order of the hits.

    Raises RepeatedHit for the earliest line of a block that repeats a document or, with `distinct_scores`, a
    score of the same query. A repeated document that has dropped out of the top k already is not detected: it
    cannot change the result.
    """

    def __init__(self, queries: int, top_k: int, distinct_scores: bool = False):
        self.rows = np.full((queries, top_k), PADDING, np.int32)
        self.scores = np.full((queries, top_k), -np.inf)
        self._distinct_scores = distinct_scores
        self._start_block()

    def add(self, query: int, document: int, score: float, number: int) -> None:
        """Add the hit of line `number`."""
        queries, documents, scores, numbers = self._block
        queries.append(query)
        documents.append(document)
        scores.append(score)
        numbers.append(number)
        if len(queries) == HITS_PER_BLOCK:
            self.merge()

    def merge(self) -> None:
        """Merge the hits that were added since the last merge into the ranking."""
        block = [np.asarray(values) for values in self._block]
        self._start_block()
        touched = np.unique(block[0])
        mask = self.rows[touched] != PADDING
        previous = (
            np.repeat(touched, mask.sum(1)),
            self.rows[touched][mask],
            self.scores[touched][mask],
            np.zeros(mask.sum(), np.int64),
        )
        queries, documents, scores, numbers = (
            np.concatenate(pair) for pair in zip(previous, block, strict=True)
        )
        self._check_repeats(queries, documents, scores, numbers)
        order = np.lexsort((-scores, queries))
        starts = np.searchsorted(queries[order], touched)
        rank = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
        keep = rank < self.rows.shape[1]
        self.rows[touched], self.scores[touched] = PADDING, -np.inf
        target = queries[order][keep], rank[keep]
        self.rows[target], self.scores[target] = documents[order][keep], scores[order][keep]

    def _start_block(self) -> None:
        self._block = array("i"), array("i"), array("d"), array("q")

    def _check_repeats(
        self, queries: np.ndarray, documents: np.ndarray, scores: np.ndarray, numbers: np.ndarray
    ) -> None:
        repeated = _repeats(documents, queries)
        if self._distinct_scores:
            repeated = np.concatenate([repeated, _repeats(scores, queries)])
        if len(repeated):
            first = repeated[np.argmin(numbers[repeated])]
            raise RepeatedHit(
                int(numbers[first]), int(queries[first]), int(documents[first]), float(scores[first])
            )


def _repeats(values: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The positions of hits whose value an earlier hit of the same query has."""
    order = np.lexsort((values, queries))
    same = (np.diff(queries[order]) == 0) & (np.diff(values[order]) == 0)
    return order[1:][same]
