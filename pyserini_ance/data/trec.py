"""TREC runs and qrels, the text files that every evaluation tool reads; a builder of rankings from hits."""

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from pyserini_ance.data.formats.lines import Line, is_writable, shown, whole_number
from pyserini_ance.data.formats.text_files import Block, Skip, read_blocks, read_lines
from pyserini_ance.data.known_positives import PADDING as PADDING  # rankings are read together with it
from pyserini_ance.storage.files import whole_file

Run = dict[str, dict[str, float]]
Qrels = dict[str, dict[str, int]]
Rows = Iterable[tuple[str, str, float]]
Hit = tuple[int, str, str, float]  # the number of its line, query, document, score

RUN_COLUMNS = ("query", "Q0", "document", "rank", "score", "tag")
QRELS_COLUMNS = ("query", "0", "document", "grade")
BEIR_COLUMNS = ("query", "document", "grade")
BEIR_HEADER = "score"  # the third name of BEIR's header
# Merging a block of this size takes 120 MB. If hits are grouped by query, larger blocks are not faster.
HITS_PER_BLOCK = 1 << 20


def best_first(scores: Mapping[str, float]) -> list[str]:
    """The documents of a query in trec_eval's order: by score in float32, ties by descending id."""
    rounded = np.fromiter(scores.values(), np.float32, len(scores)).tolist()
    return [document for _, document in sorted(zip(rounded, scores, strict=True), reverse=True)]


def read_run(path: str | Path) -> Run:
    """Read scores by query and document. The rank column is ignored: as in trec_eval, scores alone rank.

    Raises ValueError, with file and line, for a malformed line, a score that is not a number and a repeated
    document.
    """
    return _read(Path(path), _Columns(RUN_COLUMNS, "score", _finite, "a finite number"))


def read_qrels(path: str | Path) -> Qrels:
    """Read grades by query and document; a grade above 0 is relevant.

    Lines have TREC's four columns, or BEIR's three, which are separated by tabs and may have a header; the
    first line that is not empty decides. Raises ValueError as `read_run` does, but for a repeated document
    only if its grades differ.
    """
    first = next(read_lines(Path(path)), Line(Path(path), 1, ""))
    is_trec = len(first.text.split()) == len(QRELS_COLUMNS)
    is_beir = not is_trec and len(first.text.split("\t")) == len(BEIR_COLUMNS)
    names = BEIR_COLUMNS if is_beir else QRELS_COLUMNS
    expected = "a whole number of at most nine digits"
    columns = _Columns(names, "grade", _whole_numbers, expected, first.number)
    return _read(Path(path), columns, may_repeat=True)


def write_run(path: str | Path, rows: Rows, tag: str, decimals: int = 6) -> None:
    """Write (query id, document id, score) rows in Pyserini's text form, atomically.

    Rows must be ordered best first within a query.
    """

    def format_line(query: str, document: str, rank: int, score: float) -> str:
        return f"{query} Q0 {document} {rank} {score:.{decimals}f} {tag}"

    _write(path, rows, format_line)


def write_ranks(path: str | Path, rows: Rows) -> None:
    """Write the same rows as MS MARCO's `qid TAB docid TAB rank`, without scores."""
    _write(path, rows, lambda query, document, rank, score: f"{query}\t{document}\t{rank}")


def _write(path: str | Path, rows: Rows, format_line: Callable[[str, str, int, float], str]) -> None:
    ranks: dict[str, Iterator[int]] = {}
    with whole_file(Path(path)) as file:
        for query, document, score in rows:
            _check_writable(query, document, score, path)
            line = format_line(query, document, next(ranks.setdefault(query, count(1))), score)
            file.write(f"{line}\n".encode())


def read_hits(path: Path, skip: Skip | None = None) -> Iterator[Hit]:
    """Iterate over (line number, query, document, score) of a run, without lines for which `skip` is true.

    Raises ValueError as `read_run` does, except for repeated documents.
    """
    return _rows(path, _Columns(RUN_COLUMNS, "score", _finite, "a finite number"), skip)


def repeated_document(line: Line, query: str, document: str) -> ValueError:
    """The error to raise for a line whose document an earlier line has for the same query."""
    problem = f"document {shown(document)} again for query {shown(query)}"
    return line.error(problem, "each document once per query", "keep one line")


def two_grades(
    line: Line, query: str, document: str, grade: object, earlier_grade: object, earlier: int
) -> ValueError:
    """The error to raise for a line with another grade than line `earlier` has for the same pair."""
    pair = f"query {shown(query)} and document {shown(document)}"
    problem = f"grade {grade} for {pair}, which line {earlier} gave {earlier_grade}"
    return line.error(problem, "one grade for a pair", "delete one of the two lines")


@dataclass(frozen=True)
class _Columns[Value]:
    """The columns of a file, and the one of its values.

    convert: makes values of texts, or raises ValueError. expected: what a text should be, for messages.
    header: the number of the line that may be BEIR's header.
    """

    names: tuple[str, ...]
    value: str
    convert: Callable[[Sequence[str]], Sequence[Value]]
    expected: str
    header: int = 1

    @property
    def read(self) -> list[int]:
        """The indices of the columns of query, document and value."""
        return [self.names.index(name) for name in ("query", "document", self.value)]


def _read[Value](
    path: Path, columns: _Columns[Value], may_repeat: bool = False
) -> dict[str, dict[str, Value]]:
    """`may_repeat`: a pair may occur again with an equal value."""
    values: dict[str, dict[str, Value]] = {}
    for number, query, document, value in _rows(path, columns):
        of_query = values.setdefault(query, {})
        if document not in of_query:
            of_query[document] = value
        elif not may_repeat:
            raise repeated_document(Line(path, number, ""), query, document)
        elif value != of_query[document]:
            earlier = next(row[0] for row in _rows(path, columns) if row[1:3] == (query, document))
            raise two_grades(Line(path, number, ""), query, document, value, of_query[document], earlier)
    return values


def _rows[Value](
    path: Path, columns: _Columns[Value], skip: Skip | None = None
) -> Iterator[tuple[int, str, str, Value]]:
    """Blocks of well-formed lines are converted at once, all others line by line, which finds the error."""
    has_rows = False
    for block in read_blocks(path):
        rows = None if skip or columns.names == BEIR_COLUMNS else _block_rows(block, columns)
        for row in _line_rows(block, columns, skip) if rows is None else rows:
            has_rows = True
            yield row
    if not has_rows and skip is None:
        names = ", ".join(columns.names)
        raise ValueError(f"{path} has no lines; expected lines of {len(columns.names)} columns: {names}")


def _block_rows[Value](
    block: Block, columns: _Columns[Value]
) -> Iterator[tuple[int, str, str, Value]] | None:
    """The rows of a block whose lines are all well-formed; else None."""
    if (cells := block.columns(len(columns.names))) is None:
        return None
    queries, documents, texts = (cells[index] for index in columns.read)
    try:
        values = columns.convert(texts)
    except ValueError:
        return None
    return zip(count(block.after_line + 1), queries, documents, values, strict=False)


def _line_rows[Value](
    block: Block, columns: _Columns[Value], skip: Skip | None
) -> Iterator[tuple[int, str, str, Value]]:
    is_beir = columns.names == BEIR_COLUMNS
    for line in block.lines(skip):
        fields = line.columns(columns.names, separator="\t" if is_beir else None)
        query, document, text = (fields[index] for index in columns.read)
        if is_beir and line.number == columns.header and text == BEIR_HEADER:
            continue
        try:
            (value,) = columns.convert((text,))
        except ValueError:
            problem = f"{columns.value} {shown(text)}"
            raise line.error(problem, columns.expected, "correct the line") from None
        yield line.number, query, document, value


def _finite(texts: Sequence[str]) -> Sequence[float]:
    # float() also accepts 1_000 and digits of other scripts, which other tools do not read.
    all_texts = "".join(texts)
    values = list(map(float, texts))
    if "_" in all_texts or not all_texts.isascii() or not all(map(math.isfinite, values)):
        raise ValueError
    return values


def _whole_numbers(texts: Sequence[str]) -> Sequence[int]:
    return list(map(whole_number, texts))


def _check_writable(query: str, document: str, score: float, path: str | Path) -> None:
    if not math.isfinite(score):
        raise ValueError(
            f"{path}: score {score} of document {shown(document)} for query {shown(query)} "
            "is not a finite number"
        )
    for id in (query, document):
        if id.split() != [id]:
            raise ValueError(
                f"{path}: id {shown(id)} is empty or contains blanks, "
                "which the TREC run format cannot represent; rename it"
            )
        if not is_writable(id):
            raise ValueError(
                f"{path}: id {shown(id)} holds a NUL character or half a surrogate pair; rename it"
            )


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
