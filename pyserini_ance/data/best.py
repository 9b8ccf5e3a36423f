"""The best documents of each query, found while hits come in any order: a block of hits is in memory, and what is best so far."""

from array import array

import numpy as np

PADDING = -1
HITS_PER_BLOCK = 1 << 20  # to merge them takes 120 MB, and where they are grouped by query, no longer than more at a time


class Repeated(ValueError):
    """The hit at line `number` is of a document that its query has already, or of a rank."""

    def __init__(self, number: int, query: int, document: int, score: float):
        super().__init__(f"line {number}: document {document} again for query {query}")
        self.number, self.query, self.document, self.score = number, query, document, score


class Best:
    """found: (queries, depth) int32, rows of documents by falling score, PADDING at the end; scores: alike, -inf. Ties stay in order.

    Raises Repeated for the earliest line of a block that repeats a document, or, with `distinct_scores`, a score. A document that is no
    longer among the best when it comes again is not noticed: it would change nothing.
    """

    def __init__(self, queries: int, depth: int, distinct_scores: bool = False):
        self.found, self.scores = np.full((queries, depth), PADDING, np.int32), np.full((queries, depth), -np.inf)
        self._distinct_scores = distinct_scores
        self._empty()

    def add(self, query: int, document: int, score: float, number: int) -> None:
        """A hit from line `number`."""
        queries, documents, scores, numbers = self._block
        queries.append(query)
        documents.append(document)
        scores.append(score)
        numbers.append(number)
        if len(queries) == HITS_PER_BLOCK:
            self.merge()

    def merge(self) -> None:
        """Take up the hits since the last time."""
        block = [np.asarray(values) for values in self._block]
        self._empty()
        touched = np.unique(block[0])
        there = self.found[touched] != PADDING
        former = np.repeat(touched, there.sum(1)), self.found[touched][there], self.scores[touched][there], np.zeros(there.sum(), np.int64)
        queries, documents, scores, numbers = hits = [np.concatenate(pair) for pair in zip(former, block, strict=True)]
        self._refuse_repeats(*hits)
        order = np.lexsort((-scores, queries))
        starts = np.searchsorted(queries[order], touched)
        rank = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
        kept = rank < self.found.shape[1]
        self.found[touched], self.scores[touched] = PADDING, -np.inf
        place = queries[order][kept], rank[kept]
        self.found[place], self.scores[place] = documents[order][kept], scores[order][kept]

    def _empty(self) -> None:
        self._block = array("i"), array("i"), array("d"), array("q")

    def _refuse_repeats(self, queries: np.ndarray, documents: np.ndarray, scores: np.ndarray, numbers: np.ndarray) -> None:
        again = _again(documents, queries)
        if self._distinct_scores:
            again = np.concatenate([again, _again(scores, queries)])
        if len(again):
            first = again[np.argmin(numbers[again])]
            raise Repeated(int(numbers[first]), int(queries[first]), int(documents[first]), float(scores[first]))


def _again(values: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The places of hits whose value an earlier one of the same query has."""
    order = np.lexsort((values, queries))
    same = (np.diff(queries[order]) == 0) & (np.diff(values[order]) == 0)
    return order[1:][same]
