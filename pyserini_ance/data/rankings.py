"""Ranking files, from which negatives are drawn, in the forms in which they are published.

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

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Split, Texts
from pyserini_ance.data.formats import dpr, flagembedding, tevatron
from pyserini_ance.data.formats.lines import Line, Skip, extension, is_writable, read_lines, shown
from pyserini_ance.data.formats.records import read_records
from pyserini_ance.data.formats.training_files import Layout, checked_id, listed_negatives
from pyserini_ance.data.trec import (
    PADDING,
    RUN_COLUMNS,
    Hit,
    RankingBuilder,
    RepeatedHit,
    Run,
    read_hits,
    read_run,
    repeated_document,
)

LAYOUTS = (dpr.LAYOUT, tevatron.LAYOUT, flagembedding.LAYOUT)
TRIPLES = "triples"
RANK_COLUMNS = 3
_RANK = re.compile("0{0,8}[1-9][0-9]{0,8}")
FORMS = (
    "6 columns separated by blanks (query, Q0, document, rank, score, tag: a TREC run), "
    "3 (query, document, rank), "
    f"3 separated by tabs in a file with {TRIPLES!r} in its name (query, positive, negative), "
    "or 4 (query id, passage id, query, passage)"
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
    path: Path,
    split: Split,
    documents: Texts,
    top_k: int,
    rows: np.ndarray | None = None,
    elsewhere: np.ndarray | None = None,
) -> Ranking:
    """Read the ranking of the query `rows` (Q,) of a split from a file; None: of all its queries.

    Other queries in the file are left out. Lines of the query rows `elsewhere`, which another process reads,
    are skipped by their first word and not checked, except in files of texts and of JSON, where a query's id
    is not the first word. Memory is 12 bytes for each of the `top_k` documents of a query, however long the
    file is. Raises ValueError, with the line, for a file of unknown form, for a malformed
    line and for a document that the collection lacks; and if the file ranks documents for no query of the
    split.
    """
    ids = _IdLookup(
        path, split, documents, np.arange(len(split.queries)) if rows is None else rows, elsewhere
    )
    hits = _hits(path, ids.skip())
    ranking = (
        _in_order(_pairs(path, split.queries, documents, ids.skip(b"\t")), ids, top_k)
        if hits is None
        else _by_score(hits, ids, top_k)
    )
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
    if not _has_ranks(path):
        return read_run(path)
    run: defaultdict[str, dict[str, float]] = defaultdict(dict)
    taken: defaultdict[str, set[float]] = defaultdict(set)
    for line, query, document, score in _ranks(path):
        if document in run[query] or score in taken[query]:
            raise _repeated(line, query, document, score)
        taken[query].add(score)
        run[query][document] = score
    return dict(run)


class _IdLookup:
    """The positions of query ids among the `rows` to read, the rows of document ids, and the relevant pairs.

    elsewhere: the query rows whose lines another process reads. has_others: whether the file was seen to rank
    documents for other queries of the split.
    """

    def __init__(
        self, path: Path, split: Split, documents: Texts, rows: np.ndarray, elsewhere: np.ndarray | None
    ):
        self.path, self.documents = path, documents
        self.ids = [split.queries.ids[row] for row in rows.tolist()]
        self._positions = {id: position for position, id in enumerate(self.ids)}
        self._others = set(split.queries.ids) - self._positions.keys()
        self.has_others = False
        skipped = [] if elsewhere is None else [split.queries.ids[row] for row in elsewhere.tolist()]
        # A line's text has more kinds of blanks than its bytes: an id that holds one is not its first word.
        self._skipped = {id.encode() for id in skipped if id.split() == [id] and is_writable(id)}
        known_positives = split.known_positives("query")
        self.relevant = {
            (position, documents.ids[document])
            for position, row in enumerate(rows.tolist())
            for document in known_positives.of(row).tolist()
        }

    def query(self, id: str) -> int | None:
        position = self._positions.get(id)
        if position is None and not self.has_others:
            self.has_others = id in self._others
        return position

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

    def document(self, query: str, id: str) -> int:
        row = self.documents.rows.get(id)
        if row is None:
            raise ValueError(
                f"{self.path} ranks document {id!r} for query {query!r}, "
                "but the collection has no such document; "
                f"pass a run over these {len(self.documents)} documents"
            )
        return row


def _by_score(hits: Iterator[Hit], ids: _IdLookup, top_k: int) -> Ranking:
    positives = np.full(len(ids.ids), np.nan, np.float32)
    builder = RankingBuilder(len(ids.ids), top_k, distinct_scores=_has_ranks(ids.path))
    try:
        for line, query, document, score in hits:
            row = ids.query(query)
            if row is not None:
                builder.add(row, ids.document(query, document), score, line.number)
                if (row, document) in ids.relevant:
                    positives[row] = np.fmax(positives[row], score)
        builder.merge()
    except RepeatedHit as hit:
        line = Line(ids.path, hit.number, "")
        raise _repeated(line, ids.ids[hit.query], ids.documents.ids[hit.document], hit.score) from None
    return Ranking(builder.rows, builder.scores.astype(np.float32), positives)


def _in_order(pairs: Iterable[tuple[str, str]], ids: _IdLookup, top_k: int) -> Ranking:
    """Rank documents by the order of the lines. Documents that repeat count once within the top k.

    Beyond the top k only the ranks of relevant documents matter, and every line counts.
    """
    rows = np.full((len(ids.ids), top_k), PADDING, np.int32)
    positives = np.full(len(ids.ids), np.nan, np.float32)
    counts = [0] * len(ids.ids)
    for query, document in pairs:
        query_row = ids.query(query)
        if query_row is None:
            continue
        count = counts[query_row]
        if count < top_k:
            row = ids.document(query, document)
            if row in rows[query_row, :count]:
                continue
            rows[query_row, count] = row
        counts[query_row] = count + 1
        if (query_row, document) in ids.relevant:
            positives[query_row] = np.fmax(positives[query_row], -counts[query_row])
    scores = np.where(rows == PADDING, -np.inf, -np.arange(1, top_k + 1)).astype(np.float32)
    return Ranking(rows, scores, positives)


def _hits(path: Path, skip: Skip | None) -> Iterator[Hit] | None:
    """The hits of a file whose lines have scores or ranks; None for a file whose lines are in order."""
    first = _first(path)
    words = len(first.text.split())
    if _is_listed(path) or _has_texts(first) or _has_triples(first):
        return None
    if words == RANK_COLUMNS:
        return _ranks(path, skip)
    if words in (0, len(RUN_COLUMNS)):
        return read_hits(path, skip)
    raise first.error(f"{words} columns in {shown(first.text)}", FORMS, "pass a file of one of these forms")


def _pairs(path: Path, queries: Texts, documents: Texts, skip: Skip | None) -> Iterator[tuple[str, str]]:
    """Query and document ids of a file whose lines are in order. Files without ids are matched by text."""
    if _is_listed(path):
        return listed_negatives(path, layout_of(path))
    first = _first(path)
    if _has_texts(first):
        return _top(path, skip)
    if len(first.text.split()) == 3:
        return _triples(path, skip)
    return _text_triples(path, queries, documents)


def _is_listed(path: Path) -> bool:
    return extension(path) in (".json", ".jsonl")


def _has_texts(first: Line) -> bool:
    return first.text.count("\t") == 3


def _has_triples(first: Line) -> bool:
    return first.text.count("\t") == 2 and TRIPLES in first.path.name


def _first(path: Path) -> Line:
    return next(read_lines(path), Line(path, 1, ""))


def layout_of(path: Path) -> Layout:
    """The format of a file of training records. Raises ValueError if its first record has no known key."""
    empty: tuple[Line, dict] = (Line(path, 1, ""), {})
    line, record = next(read_records(path), empty)
    for layout in LAYOUTS:
        if layout.positives in record:
            return layout
    layouts = ", ".join(f"{layout.positives} ({layout.name})" for layout in LAYOUTS)
    raise line.error(
        f"a record with the keys {shown(list(record))}",
        f"one that lists passages under {layouts}",
        "pass such a file",
    )


def _has_ranks(path: Path) -> bool:
    """Whether a file with scores or ranks has ranks."""
    return len(_first(path).text.split()) == RANK_COLUMNS


def _ranks(path: Path, skip: Skip | None = None) -> Iterator[Hit]:
    has_first = False

    def skip_below_first(raw: bytes) -> bool:  # until a rank 1 proves the form, all lines are read
        return has_first and skip is not None and skip(raw)

    for line in read_lines(path, skip and skip_below_first):
        query, document, rank = line.columns(("query", "document", "rank"), separator=None)
        if not _RANK.fullmatch(rank):
            raise _rank_error(line, f"rank {shown(rank)}")
        has_first = has_first or int(rank) == 1
        yield line, query, document, -float(rank)
    if not has_first:
        raise _rank_error(Line(path, 1, ""), "a file without any rank 1")


def _repeated(line: Line, query: str, document: str, score: float) -> ValueError:
    """The error for a repeated document, or a repeated rank; the score of a rank is its negative."""
    if _has_ranks(line.path):
        return _rank_error(line, f"document {document!r} or rank {-score:.0f} again for query {query!r}")
    return repeated_document(line, query, document)


def _rank_error(line: Line, problem: str) -> ValueError:
    cure = f"correct it; a file of triples (query, positive, negative) must have {TRIPLES!r} in its name"
    return line.error(problem, "ranks counted from 1, each document and each rank once per query", cure)


def _top(path: Path, skip: Skip | None) -> Iterator[tuple[str, str]]:
    for line in read_lines(path, skip):
        query, document, _, _ = line.columns(("query id", "passage id", "query", "passage"))
        yield query, checked_id(line, document)


def _triples(path: Path, skip: Skip | None) -> Iterator[tuple[str, str]]:
    for line in read_lines(path, skip):
        query, _, negative = line.columns(("query id", "positive id", "negative id"))
        yield query, checked_id(line, negative)


def _text_triples(path: Path, queries: Texts, documents: Texts) -> Iterator[tuple[str, str]]:
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
            yield id, documents.ids[int(rows[position])]


def _key(text: str) -> int:
    """A text's key of 8 bytes, so that the texts of the collection need not be in memory."""
    return int(flagembedding.text_id(" ".join(text.split())), 16)
