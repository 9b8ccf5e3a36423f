"""Rankings of documents by query, from which negatives are drawn, read from files of any form.

The forms are those of `ranking_forms.py`.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.data.formats.lines import Line, is_writable, shown
from pyserini_ance.data.formats.text_files import Skip
from pyserini_ance.data.ranking_forms import Pair, has_ranks, hits_of, pairs_of, ranks_of, repeated_hit
from pyserini_ance.data.trec import PADDING, Hit, RankingBuilder, RepeatedHit, Run, read_run

log = logging.getLogger(__name__)
CACHED_IDS = 1 << 17  # documents that many queries find: some 20 MB


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
    path: Path,
    split: Split,
    collection: Collection,
    top_k: int,
    rows: np.ndarray | None = None,
    elsewhere: np.ndarray | None = None,
) -> Ranking:
    """Read the ranking of the query `rows` (Q,) of a split from a file; None: of all its queries.

    Other queries in the file are left out, and so are, with a warning, documents that the collection leaves
    out as they have no text. Lines of the query rows `elsewhere`, which another process reads,
    are skipped by their first word and not checked, except in files of texts and of JSON, where a query's id
    is not the first word. Memory is 12 bytes for each of the `top_k` documents of a query, however long the
    file is. Raises ValueError, with the line, for a file of unknown form, for a malformed
    line and for a document that the collection lacks; and if the file ranks documents for no query of the
    split.
    """
    ids = _IdLookup(
        path, split, collection, np.arange(len(split.queries)) if rows is None else rows, elsewhere
    )
    hits = hits_of(path, ids.skip())
    ranking = (
        _in_order(pairs_of(path, split.queries, collection.documents, ids.skip(b"\t")), ids, top_k)
        if hits is None
        else _by_score(hits, ids, top_k)
    )
    ids.documents.log_left_out()
    if (ranking.rows == PADDING).all() and not ids.has_others:
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


class DocumentLookup:
    """The rows of the documents that a file of rankings or scores names."""

    def __init__(self, path: Path, collection: Collection):
        self._path, self._collection = path, collection
        self._row_of = lru_cache(CACHED_IDS)(collection.documents.rows.get)
        self._left_out = 0

    def row(self, number: int, query: str, id: str) -> int | None:
        """The row of a document in line `number`; None, and counted, if it was left out of the collection.

        Raises ValueError for a document that the collection lacks.
        """
        row = self._row_of(id)
        if row is None:
            if id not in self._collection.left_out:
                problem = f"document {shown(id)} for query {shown(query)}, which the collection lacks"
                expected = f"one of its {len(self._collection.documents)} documents"
                raise Line(self._path, number, "").error(
                    problem, expected, "pass a file over this collection"
                )
            self._left_out += 1
        return row

    def log_left_out(self) -> None:
        """Log a warning with the number of lines whose documents were left out."""
        if self._left_out:
            log.warning("skipped: %d hits of documents without text in %s", self._left_out, self._path)


class _IdLookup:
    """The positions of query ids among the `rows` to read, the documents, and the relevant ones.

    elsewhere: the query rows whose lines another process reads. has_others: whether the file was seen to rank
    documents for other queries of the split.
    """

    def __init__(
        self, path: Path, split: Split, collection: Collection, rows: np.ndarray, elsewhere: np.ndarray | None
    ):
        self.path, self.document_ids = path, collection.documents.ids
        self.documents = DocumentLookup(path, collection)
        self.ids = [split.queries.ids[row] for row in rows.tolist()]
        self._positions = {id: position for position, id in enumerate(self.ids)}
        self._others = set(split.queries.ids) - self._positions.keys()
        self.has_others = False
        skipped = [] if elsewhere is None else [split.queries.ids[row] for row in elsewhere.tolist()]
        # A line's text has more kinds of blanks than its bytes: an id that holds one is not its first word.
        self._skipped = {id.encode() for id in skipped if id.split() == [id] and is_writable(id)}
        known_positives = split.known_positives("query")
        self._relevant = {
            position: {self.document_ids[document] for document in of_query}
            for position, row in enumerate(rows.tolist())
            if (of_query := known_positives.of(row).tolist())
        }

    def query(self, id: str) -> int | None:
        position = self._positions.get(id)
        if position is None and not self.has_others:
            self.has_others = id in self._others
        return position

    def relevant(self, position: int) -> Set[str]:
        """The ids of the documents that are relevant to the query at `position`."""
        return self._relevant.get(position, frozenset())

    def skip(self, separator: bytes | None = None) -> Skip | None:
        """Return whether another process reads a line, whose first word ends at `separator`; None: none is.

        separator: None means any blank.
        """

        def is_elsewhere(raw: bytes) -> bool:
            words = raw.split(separator, 1)
            if not words or words[0] not in self._skipped:
                return False
            self.has_others = True
            return True

        return is_elsewhere if self._skipped else None


def _by_score(hits: Iterator[Hit], ids: _IdLookup, top_k: int) -> Ranking:
    positives = np.full(len(ids.ids), np.nan, np.float32)
    builder = RankingBuilder(len(ids.ids), top_k, distinct_scores=has_ranks(ids.path))
    try:
        for query, of_query in groupby(hits, key=itemgetter(1)):
            row = ids.query(query)
            if row is None:
                continue
            relevant = ids.relevant(row)
            for number, _, document, score in of_query:
                if (document_row := ids.documents.row(number, query, document)) is None:
                    continue
                builder.add(row, document_row, score, number)
                if document in relevant:
                    positives[row] = np.fmax(positives[row], score)
        builder.merge()
    except RepeatedHit as hit:
        query, document = ids.ids[hit.query], ids.document_ids[hit.document]
        raise repeated_hit(ids.path, hit.number, query, document, hit.score) from None
    return Ranking(builder.rows, builder.scores.astype(np.float32), positives)


def _in_order(pairs: Iterable[Pair], ids: _IdLookup, top_k: int) -> Ranking:
    """Rank documents by the order of the lines. Documents that repeat count once within the top k.

    Beyond the top k only the ranks of relevant documents matter, and every line counts.
    """
    rows = np.full((len(ids.ids), top_k), PADDING, np.int32)
    positives = np.full(len(ids.ids), np.nan, np.float32)
    counts = [0] * len(ids.ids)
    for number, query, document in pairs:
        query_row = ids.query(query)
        if query_row is None:
            continue
        count = counts[query_row]
        if count < top_k:
            row = ids.documents.row(number, query, document)
            if row is None or row in rows[query_row, :count]:
                continue
            rows[query_row, count] = row
        counts[query_row] = count + 1
        if document in ids.relevant(query_row):
            positives[query_row] = np.fmax(positives[query_row], -counts[query_row])
    scores = np.where(rows == PADDING, -np.inf, -np.arange(1, top_k + 1)).astype(np.float32)
    return Ranking(rows, scores, positives)
