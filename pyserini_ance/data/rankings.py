"""Rankings of documents by query, from which negatives are drawn, read from files of any form.

The forms are those of `ranking_forms.py`.
"""

import logging
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.data.formats.lines import Line, shown
from pyserini_ance.data.known_positives import is_in_sorted
from pyserini_ance.data.ranking_forms import has_ranks, hits_of, ranks_of, repeated_hit
from pyserini_ance.data.trec import PADDING, Hit, Run, read_run

log = logging.getLogger(__name__)
# Merging a block of this size takes 120 MB. If hits are grouped by query, larger blocks are not faster.
HITS_PER_BLOCK = 1 << 20


@dataclass(frozen=True)
class Ranking:
    """The top k documents of Q queries.

    rows: (Q, top_k) int32 document rows, best first, PADDING at the end.
    scores: (Q, top_k) float32, -inf at the padding.
    positives: (Q,) float32, the score of the best relevant document; NaN if the file ranks none.
    """

    rows: np.ndarray
    scores: np.ndarray
    positives: np.ndarray


def read_ranking(
    path: Path, split: Split, collection: Collection, top_k: int, rows: np.ndarray | None = None
) -> Ranking:
    """Read the ranking of the query `rows` (Q,) of a split from a file; None: of all its queries.

    Other queries in the file are left out, and so are, with a warning, documents that the collection leaves
    out as they have no text. Memory is 12 bytes for each of the `top_k` documents of a query, whatever the
    length of the file. Raises ValueError, with the line, for a file of unknown form, for a malformed line and
    for a document that the collection lacks; and if the file ranks documents for no query of the split.
    """
    rows = np.arange(len(split.queries)) if rows is None else rows
    ids = {split.queries.ids[row]: position for position, row in enumerate(rows.tolist())}
    known = split.known_positives("query").subset(rows)
    pairs = np.repeat(np.arange(len(rows)), known.counts) * len(collection.documents) + known.rows
    hits, in_order = hits_of(path, split.queries, collection.documents)
    blocks = HitBlocks(path, collection, ids, split)
    read = _in_order if in_order else _by_score
    ranking = read(blocks, hits, np.sort(pairs), top_k)
    blocks.log_left_out()
    if (ranking.rows == PADDING).all() and not blocks.has_others:
        raise ValueError(
            f"{path} ranks documents for none of the {len(split.queries)} queries of split {split.name!r}; "
            "is it a run of another split?"
        )
    return ranking


def read_ranked(path: Path) -> Run:
    """Read scores by query and document from a TREC run or MS MARCO's `qid docid rank`.

    The collection does not matter.
    """
    if path.is_dir():
        found = ", ".join(map(str, sorted(path.glob("run.*.trec"))))  # the rankings of a run directory
        raise IsADirectoryError(f"{path} is a folder; pass a ranking{found and f', such as {found}'}")
    if not has_ranks(path):
        return read_run(path)
    run: defaultdict[str, dict[str, float]] = defaultdict(dict)
    taken: defaultdict[str, set[float]] = defaultdict(set)
    for number, query, document, score in ranks_of(path):
        if document in run[query] or score in taken[query]:
            raise repeated_hit(path, number, query, document, score)
        taken[query].add(score)
        run[query][document] = score
    return dict(run)


class HitBlock(NamedTuple):
    """Hits in the order of their lines.

    numbers: of the lines. queries: positions. ids, documents: the documents' ids and rows, -1 for one that is
    not in the collection.
    """

    numbers: np.ndarray
    queries: np.ndarray
    ids: list[str]
    documents: np.ndarray
    scores: np.ndarray


class HitBlocks:
    """The hits of some queries, block by block, so that document ids are looked up together.

    queries: the positions of these queries by id. has_others: whether the file was seen to rank documents for
    other queries of the split.
    """

    def __init__(self, path: Path, collection: Collection, queries: Mapping[str, int], split: Split):
        self.path, self.collection, self.queries = path, collection, queries
        self.has_others = False
        self._others = set(split.queries.ids) - queries.keys()
        self._left_out = 0

    def of(self, hits: Iterable[Hit]) -> Iterator[HitBlock]:
        """Iterate over the hits of the queries."""
        columns: tuple[array, ...] = array("q"), array("q"), array("d")
        ids: list[str] = []
        for number, query, document, score in hits:
            position = self.queries.get(query)
            if position is None:
                self.has_others = self.has_others or query in self._others
                continue
            for column, value in zip(columns, (number, position, score), strict=True):
                column.append(value)
            ids.append(document)
            if len(ids) == HITS_PER_BLOCK:
                yield self._block(columns, ids)
                columns, ids = (array("q"), array("q"), array("d")), []
        yield self._block(columns, ids)

    def _block(self, columns: tuple[array, ...], ids: list[str]) -> HitBlock:
        numbers, queries, scores = map(np.asarray, columns)
        return HitBlock(numbers, queries, ids, self.collection.documents.rows_of(ids), scores)

    def known(self, hits: Iterable[Hit]) -> Iterator[HitBlock]:
        """Iterate over the hits of documents that the collection has. Raises as `count_left_out` does."""
        for block in self.of(hits):
            for index in np.flatnonzero(block.documents < 0).tolist():
                self.count_left_out(block, index)
            kept = np.flatnonzero(block.documents >= 0)
            numbers, queries, ids, documents, scores = block
            yield HitBlock(numbers[kept], queries[kept], ids, documents[kept], scores[kept])

    def count_left_out(self, block: HitBlock, index: int) -> None:
        """Count a hit of a document that the collection leaves out.

        Raises ValueError, with the line, for one that it lacks.
        """
        id, query = block.ids[index], list(self.queries)[block.queries[index]]
        if id not in self.collection.left_out:
            problem = f"document {shown(id)} for query {shown(query)}, which the collection lacks"
            expected = f"one of its {len(self.collection.documents)} documents"
            line = Line(self.path, int(block.numbers[index]), "")
            raise line.error(problem, expected, "pass a file over this collection")
        self._left_out += 1

    def log_left_out(self) -> None:
        """Log a warning with the number of lines whose documents were left out."""
        if self._left_out:
            log.warning("skipped: %d hits of documents without text in %s", self._left_out, self.path)


def _by_score(blocks: HitBlocks, hits: Iterable[Hit], relevant: np.ndarray, top_k: int) -> Ranking:
    """relevant: ascending pairs of a query's position and a document's row, as one number."""
    ids, documents = list(blocks.queries), blocks.collection.documents
    positives = np.full(len(ids), np.nan, np.float32)
    builder = RankingBuilder(len(ids), top_k, distinct_scores=has_ranks(blocks.path))
    try:
        for block in blocks.known(hits):
            builder.merge(block)
            is_relevant = is_in_sorted(block.queries * len(documents) + block.documents, relevant)
            scores = block.scores[is_relevant].astype(np.float32)
            np.fmax.at(positives, block.queries[is_relevant], scores)
    except RepeatedHit as hit:
        query, document = ids[hit.query], documents.ids[hit.document]
        raise repeated_hit(blocks.path, hit.number, query, document, hit.score) from None
    return Ranking(builder.rows, builder.scores.astype(np.float32), positives)


def _in_order(blocks: HitBlocks, hits: Iterable[Hit], relevant: np.ndarray, top_k: int) -> Ranking:
    """Rank documents by the order of the lines. Documents that repeat count once within the top k.

    Beyond the top k only the ranks of relevant documents matter, and every line counts.
    """
    queries, documents = len(blocks.queries), len(blocks.collection.documents)
    rows = np.full((queries, top_k), PADDING, np.int32)
    positives = np.full(queries, np.nan, np.float32)
    counts = [0] * queries
    for block in blocks.of(hits):
        is_relevant = is_in_sorted(block.queries * documents + block.documents, relevant)
        is_relevant &= block.documents >= 0
        pairs = zip(block.queries.tolist(), block.documents.tolist(), is_relevant.tolist(), strict=True)
        for index, (query, row, relevance) in enumerate(pairs):
            count = counts[query]
            if count < top_k:
                if row < 0:
                    blocks.count_left_out(block, index)
                    continue
                if row in rows[query, :count]:
                    continue
                rows[query, count] = row
            counts[query] = count + 1
            if relevance:
                positives[query] = np.fmax(positives[query], -counts[query])
    scores = np.where(rows == PADDING, -np.inf, -np.arange(1, top_k + 1)).astype(np.float32)
    return Ranking(rows, scores, positives)


class RepeatedHit(ValueError):
    """The hit at line `number` repeats a document, or a rank, of the same query."""

    def __init__(self, number: int, query: int, document: int, score: float):
        super().__init__(f"line {number}: document {document} again for query {query}")
        self.number, self.query, self.document, self.score = number, query, document, score


class RankingBuilder:
    """Merge hits block by block and keep the `top_k` best documents of each query.

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

    def merge(self, block: HitBlock) -> None:
        """Merge the hits of a block into the ranking."""
        touched = np.unique(block.queries)
        mask = self.rows[touched] != PADDING
        previous = (
            np.repeat(touched, mask.sum(1)),
            self.rows[touched][mask],
            self.scores[touched][mask],
            np.zeros(mask.sum(), np.int64),
        )
        added = block.queries, block.documents, block.scores, block.numbers
        queries, documents, scores, numbers = (
            np.concatenate(pair) for pair in zip(previous, added, strict=True)
        )
        self._check_repeats(queries, documents, scores, numbers)
        order = np.lexsort((-scores, queries))
        starts = np.searchsorted(queries[order], touched)
        rank = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
        keep = rank < self.rows.shape[1]
        self.rows[touched], self.scores[touched] = PADDING, -np.inf
        target = queries[order][keep], rank[keep]
        self.rows[target], self.scores[target] = documents[order][keep], scores[order][keep]

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
