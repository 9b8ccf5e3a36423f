"""Rankings of documents by query, from which negatives are drawn, in the forms in which they are published.

The reader detects the form of a file:

| a line, columns separated by tabs | form |
|---|---|
| `qid Q0 docid rank score tag`, separated by any blanks | a TREC run, also MS MARCO's document `top100` |
| `qid docid rank`, separated by any blanks | MS MARCO's runs |
| `qid pid query passage` | MS MARCO's `top1000.dev`, which is unordered |
| `qid pid pid`, or three texts, if `triples` is in the file's name | query, positive, negative (MS MARCO) |
| JSON, in a `.json` or `.jsonl` file | the negatives in training files of DPR, Tevatron and FlagEmbedding |

TREC runs have scores. In every other form, documents are ordered by their ranks or lines, and the score is
the negative rank.
"""

import logging
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyserini_ance.data.collection import Collection, Split, Texts
from pyserini_ance.data.formats import dpr, flagembedding, tevatron
from pyserini_ance.data.formats.lines import Line, extension, read_lines, shown
from pyserini_ance.data.formats.records import read_records
from pyserini_ance.data.formats.training_files import Layout, listed_negatives
from pyserini_ance.data.known_positives import is_in_sorted
from pyserini_ance.data.trec import (
    PADDING,
    RANK_COLUMNS,
    RUN_COLUMNS,
    Hit,
    first_line,
    has_ranks,
    read_hits,
    read_ranks,
    repeated_document,
    repeated_rank,
)

log = logging.getLogger(__name__)
# Merging a block of this size takes 120 MB. If hits are grouped by query, larger blocks are not faster.
HITS_PER_BLOCK = 1 << 20
LAYOUTS = (dpr.LAYOUT, tevatron.LAYOUT, flagembedding.LAYOUT)
TRIPLES = "triples"
FORMS = (
    "6 columns separated by blanks (query, Q0, document, rank, score, tag: a TREC run), 3 (query, document, "
    f"rank), 3 separated by tabs in a file with {TRIPLES!r} in its name (query, positive, negative), or 4 "
    "(query id, passage id, query, passage)"
)


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
    known = split.known_positives("query").subset(rows)
    pairs = np.repeat(np.arange(len(rows)), known.counts) * len(collection.documents) + known.rows
    hits, in_order = hits_of(path, split.queries, collection.documents)
    read = _in_order if in_order else _by_score
    return read(HitBlocks(path, hits, split, collection, rows), np.sort(pairs), top_k)


class HitBlock(NamedTuple):
    """Hits of documents of the collection in the order of their lines.

    numbers: of the lines. queries: positions among the queries. documents: rows.
    """

    numbers: np.ndarray
    queries: np.ndarray
    documents: np.ndarray
    scores: np.ndarray


class HitBlocks:
    """Blocks of hits of the query `rows` of a split, whose document ids are looked up together."""

    def __init__(
        self, path: Path, hits: Iterable[Hit], split: Split, collection: Collection, rows: np.ndarray
    ):
        self.path, self.split, self.collection, self.rows = path, split, collection, rows
        self._hits = hits
        self._has_ranks = not is_listed(path) and has_ranks(path)
        self._left_out = 0

    def __iter__(self) -> Iterator[HitBlock]:
        """Iterate over the blocks.

        Raises ValueError for a document that the collection lacks, and if no hit is of a query of the split.
        """
        ids = self.split.queries.ids
        positions = dict.fromkeys(ids, -1)  # -1: of the split, but not selected
        positions |= {ids[row]: position for position, row in enumerate(self.rows.tolist())}
        has_queries = False
        columns: tuple[array, ...] = array("q"), array("q"), array("d")
        documents: list[str] = []
        for number, query, document, score in self._hits:
            position = positions.get(query)
            has_queries = has_queries or position is not None
            if position is None or position < 0:
                continue
            for column, value in zip(columns, (number, position, score), strict=True):
                column.append(value)
            documents.append(document)
            if len(documents) == HITS_PER_BLOCK:
                yield self._block(columns, documents)
                columns, documents = (array("q"), array("q"), array("d")), []
        yield self._block(columns, documents)
        if not has_queries:
            raise ValueError(
                f"{self.path} has documents for none of the {len(ids)} queries of split {self.split.name!r}; "
                "is it a file of another split?"
            )
        if self._left_out:
            log.warning("skipped: %d hits of documents without text in %s", self._left_out, self.path)

    def _block(self, columns: tuple[array, ...], ids: list[str]) -> HitBlock:
        numbers, queries, scores = map(np.asarray, columns)
        documents = self.collection.documents.rows_of(ids)
        for index in np.flatnonzero(documents < 0).tolist():
            if ids[index] not in self.collection.left_out:
                query = self.query_id(queries[index])
                problem = f"document {shown(ids[index])} for query {shown(query)}, which the collection lacks"
                expected = f"one of its {len(self.collection.documents)} documents"
                line = Line(self.path, int(numbers[index]), "")
                raise line.error(problem, expected, "pass a file over this collection")
            self._left_out += 1
        kept = np.flatnonzero(documents >= 0)
        return HitBlock(numbers[kept], queries[kept], documents[kept], scores[kept])

    def query_id(self, position: int) -> str:
        """The id of the query at a position."""
        return self.split.queries.ids[int(self.rows[position])]

    def check_repeats(self, hits: HitBlock) -> None:
        """Raise ValueError for the earliest line that repeats a document, or a rank, for its query."""
        if (first := _first_repeat(hits, hits.documents)) is not None:
            id = self.collection.documents.ids[int(hits.documents[first])]
            raise repeated_document(self._line(hits, first), self.query_id(hits.queries[first]), id)
        if self._has_ranks and (first := _first_repeat(hits, hits.scores)) is not None:
            raise repeated_rank(
                self._line(hits, first), self.query_id(hits.queries[first]), float(hits.scores[first])
            )

    def _line(self, hits: HitBlock, index: int) -> Line:
        return Line(self.path, int(hits.numbers[index]), "")


def _first_repeat(hits: HitBlock, values: np.ndarray) -> int | None:
    """The index of the earliest hit whose value, of `values` (n,), an earlier hit of its query has."""
    order = np.lexsort((values, hits.queries))  # stable: of equal pairs the earlier is first
    same = (np.diff(hits.queries[order]) == 0) & (np.diff(values[order]) == 0)
    repeats = order[1:][same]
    return int(repeats[np.argmin(hits.numbers[repeats])]) if len(repeats) else None


def _by_score(blocks: HitBlocks, relevant: np.ndarray, top_k: int) -> Ranking:
    """Rank documents by their scores; ties stay in the order of the lines.

    relevant: ascending pairs of a query's position and a document's row, as one number. A repeated document
    that has dropped out of the top k already is not detected: it cannot change the result.
    """
    num_queries, num_documents = len(blocks.rows), len(blocks.collection.documents)
    rows = np.full((num_queries, top_k), PADDING, np.int32)
    scores = np.full((num_queries, top_k), -np.inf)
    positives = np.full(num_queries, np.nan, np.float32)
    for block in blocks:
        touched = np.unique(block.queries)
        is_ranked = rows[touched] != PADDING
        previous = HitBlock(
            np.zeros(is_ranked.sum(), np.int64),
            np.repeat(touched, is_ranked.sum(1)),
            rows[touched][is_ranked],
            scores[touched][is_ranked],
        )
        hits = HitBlock(*(np.concatenate(pair) for pair in zip(previous, block, strict=True)))
        blocks.check_repeats(hits)
        order = np.lexsort((-hits.scores, hits.queries))
        starts = np.searchsorted(hits.queries[order], touched)
        rank = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
        keep = rank < top_k
        rows[touched], scores[touched] = PADDING, -np.inf
        target = hits.queries[order][keep], rank[keep]
        rows[target], scores[target] = hits.documents[order][keep], hits.scores[order][keep]
        is_relevant = is_in_sorted(block.queries * num_documents + block.documents, relevant)
        np.fmax.at(positives, block.queries[is_relevant], block.scores[is_relevant].astype(np.float32))
    return Ranking(rows, scores.astype(np.float32), positives)


def _in_order(blocks: HitBlocks, relevant: np.ndarray, top_k: int) -> Ranking:
    """Rank documents by the order of the lines. Documents that repeat count once within the top k.

    Beyond the top k only the ranks of relevant documents matter, and every hit counts.
    """
    num_queries, num_documents = len(blocks.rows), len(blocks.collection.documents)
    rows = np.full((num_queries, top_k), PADDING, np.int32)
    positives = np.full(num_queries, np.nan, np.float32)
    counts = [0] * num_queries
    for block in blocks:
        is_relevant = is_in_sorted(block.queries * num_documents + block.documents, relevant)
        pairs = zip(block.queries.tolist(), block.documents.tolist(), is_relevant.tolist(), strict=True)
        for query, row, relevance in pairs:
            count = counts[query]
            if count < top_k:
                if row in rows[query, :count]:
                    continue
                rows[query, count] = row
            counts[query] = count + 1
            if relevance:
                positives[query] = np.fmax(positives[query], -counts[query])
    scores = np.where(rows == PADDING, -np.inf, -np.arange(1, top_k + 1)).astype(np.float32)
    return Ranking(rows, scores, positives)


def hits_of(path: Path, queries: Texts, documents: Texts) -> tuple[Iterator[Hit], bool]:
    """The hits of a file, and whether they are in the order of its lines, without scores.

    Files without ids are matched by the texts of queries and documents.
    """
    if is_listed(path):
        return ((*pair, 0.0) for pair in listed_negatives(path, layout_of(path))), True
    first = first_line(path)
    tabs, words = first.text.count("\t"), len(first.text.split())
    if tabs == 3:
        return _ids(path, ("query id", "passage id", "query", "passage"), 1), True
    if tabs == 2 and TRIPLES in path.name:
        if words == 3:
            return _ids(path, ("query id", "positive id", "negative id"), 2), True
        return _text_triples(path, queries, documents), True
    if words == len(RANK_COLUMNS):
        return read_ranks(path), False
    if words in (0, len(RUN_COLUMNS)):
        return read_hits(path), False
    raise first.error(f"{words} columns in {shown(first.text)}", FORMS, "pass a file of one of these forms")


def is_listed(path: Path) -> bool:
    """Whether a file lists passages in JSON records."""
    return extension(path) in (".json", ".jsonl")


def layout_of(path: Path) -> Layout:
    """The format of a file of training records. Raises ValueError if its first record has no known key."""
    empty: tuple[Line, dict] = (Line(path, 1, ""), {})
    line, record = next(read_records(path), empty)
    for layout in LAYOUTS:
        if layout.positives in record:
            return layout
    layouts = ", ".join(f"{layout.positives} ({layout.name})" for layout in LAYOUTS)
    problem = f"a record with the keys {shown(list(record))}"
    raise line.error(problem, f"one that lists passages under {layouts}", "pass such a file")


def _ids(path: Path, columns: tuple[str, ...], document: int) -> Iterator[Hit]:
    """The query in the first column, and the id in the column `document`."""
    for line in read_lines(path):
        cells = line.columns(columns)
        yield line.number, cells[0], cells[document], 0.0


def _text_triples(path: Path, queries: Texts, documents: Texts) -> Iterator[Hit]:
    """Match texts by their words, ignoring differences in blanks; of equal documents the first is used."""
    query_ids = defaultdict(list)
    for id, text in zip(queries.ids, queries.columns["text"], strict=True):
        query_ids[_key(text)].append(id)
    keys = np.fromiter(map(_key, documents.columns["text"]), np.uint64, len(documents))
    rows = np.argsort(keys, kind="stable")
    keys = keys[rows]
    for line in read_lines(path):
        query, _, negative = line.columns(("query", "positive", "negative"))
        for id in query_ids.get(_key(query), ()):
            key = np.uint64(_key(negative))
            position = int(np.searchsorted(keys, key))
            if position == len(keys) or keys[position] != key:
                expected = "the text of a document of the collection"
                cure = "pass a file made from this collection, or one with ids"
                raise line.error(f"negative {shown(negative)}", expected, cure)
            yield line.number, id, documents.ids[int(rows[position])], 0.0


def _key(text: str) -> int:
    """A text's key of 8 bytes, so that the texts of the collection need not be in memory."""
    return int(flagembedding.text_id(" ".join(text.split())), 16)
