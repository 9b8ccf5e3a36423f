"""TREC runs and qrels: text files that every evaluation tool reads."""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path

from pyserini_ance.data.formats.lines import Line, is_writable, read_lines, shown, whole_number
from pyserini_ance.storage.files import write_whole

Run = dict[str, dict[str, float]]
Qrels = dict[str, dict[str, int]]
Rows = Iterable[tuple[str, str, float]]
Hit = tuple[Line, str, str, float]

RUN_COLUMNS = ("query", "Q0", "document", "rank", "score", "tag")
QRELS_COLUMNS = ("query", "0", "document", "grade")


def read_run(path: str | Path) -> Run:
    """Scores by query and document. The rank column is not read: like trec_eval, the score alone ranks.

    Raises ValueError naming file and line for a malformed line, a score that is no number, or a repeated document.
    """
    return _read(Path(path), RUN_COLUMNS, "score", _finite, "a finite number")


def read_qrels(path: str | Path) -> Qrels:
    """Grades by query and document; a grade above 0 is relevant. Raises ValueError as `read_run` does."""
    return _read(Path(path), QRELS_COLUMNS, "grade", whole_number, "a whole number of at most nine digits")


def write_run(path: str | Path, rows: Rows, tag: str, decimals: int = 6) -> None:
    """Write (query id, document id, score) rows, best first within a query, in Pyserini's text form, whole or not at all."""
    _write(path, rows, lambda query, document, rank, score: f"{query} Q0 {document} {rank} {score:.{decimals}f} {tag}")


def write_ranks(path: str | Path, rows: Rows) -> None:
    """The same as MS MARCO's `qid TAB docid TAB rank`, without scores."""
    _write(path, rows, lambda query, document, rank, score: f"{query}\t{document}\t{rank}")


def _write(path: str | Path, rows: Rows, written: Callable[[str, str, int, float], str]) -> None:
    ranks: dict[str, Iterator[int]] = {}
    lines = []
    for query, document, score in rows:
        _refuse_unwritable(query, document, score, path)
        lines.append(written(query, document, next(ranks.setdefault(query, count(1))), score) + "\n")
    write_whole(Path(path), "".join(lines))


def read_hits(path: Path) -> Iterator[Hit]:
    """Query, document and score of each line of a run, with the line. Raises ValueError as `read_run` does, but for repeats."""
    return _rows(path, RUN_COLUMNS, "score", _finite, "a finite number")


def repeated(line: Line, query: str, document: str) -> ValueError:
    found = f"document {shown(document)} again for query {shown(query)}"
    return line.error(found, "each document once a query", "keep one line")


def _read[Value](
    path: Path, columns: tuple[str, ...], wanted: str, convert: Callable[[str], Value], expected: str
) -> dict[str, dict[str, Value]]:
    values: dict[str, dict[str, Value]] = {}
    for line, query, document, value in _rows(path, columns, wanted, convert, expected):
        of_query = values.setdefault(query, {})
        if document in of_query:
            raise repeated(line, query, document)
        of_query[document] = value
    return values


def _rows[Value](
    path: Path, columns: tuple[str, ...], wanted: str, convert: Callable[[str], Value], expected: str
) -> Iterator[tuple[Line, str, str, Value]]:
    line, places = None, [columns.index(name) for name in ("query", "document", wanted)]
    for line in read_lines(path):
        fields = line.columns(columns, separator=None)
        query, document, text = (fields[place] for place in places)
        try:
            value = convert(text)
        except ValueError:
            raise line.error(f"{wanted} {shown(text)}", expected, "correct the line") from None
        yield line, query, document, value
    if line is None:
        raise ValueError(f"{path} has no lines; expected lines of {len(columns)} columns: {', '.join(columns)}")


def _finite(text: str) -> float:
    # Python alone reads 1_000, and digits of other scripts.
    if "_" in text or not text.isascii() or not math.isfinite(value := float(text)):
        raise ValueError
    return value


def _refuse_unwritable(query: str, document: str, score: float, path: str | Path) -> None:
    if not math.isfinite(score):
        raise ValueError(f"{path}: score {score} of document {shown(document)} for query {shown(query)} is not a finite number")
    for name in (query, document):
        if name.split() != [name]:
            raise ValueError(f"{path}: id {shown(name)} is empty or contains blanks, which the TREC run format cannot hold; rename it")
        if not is_writable(name):
            raise ValueError(f"{path}: id {shown(name)} holds a NUL character or half a surrogate pair; rename it")
