"""TREC runs and qrels: the text files that every evaluation tool reads."""

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
    """Read scores by query and document. The rank column is ignored: as in trec_eval, scores alone rank.

    Raises ValueError, with file and line, for a malformed line, a score that is not a number and a repeated
    document.
    """
    return _read(Path(path), RUN_COLUMNS, "score", _finite, "a finite number")


def read_qrels(path: str | Path) -> Qrels:
    """Read grades by query and document; a grade above 0 is relevant.

    Raises ValueError as `read_run` does.
    """
    return _read(Path(path), QRELS_COLUMNS, "grade", whole_number, "a whole number of at most nine digits")


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
    lines = []
    for query, document, score in rows:
        _check_writable(query, document, score, path)
        lines.append(format_line(query, document, next(ranks.setdefault(query, count(1))), score) + "\n")
    write_whole(Path(path), "".join(lines))


def read_hits(path: Path) -> Iterator[Hit]:
    """Iterate over (line, query, document, score) of a run.

    Raises ValueError as `read_run` does, except for repeated documents.
    """
    return _rows(path, RUN_COLUMNS, "score", _finite, "a finite number")


def repeated_document(line: Line, query: str, document: str) -> ValueError:
    """The error to raise for a line whose document an earlier line has for the same query."""
    problem = f"document {shown(document)} again for query {shown(query)}"
    return line.error(problem, "each document once per query", "keep one line")


def _read[Value](
    path: Path, columns: tuple[str, ...], column: str, convert: Callable[[str], Value], expected: str
) -> dict[str, dict[str, Value]]:
    values: dict[str, dict[str, Value]] = {}
    for line, query, document, value in _rows(path, columns, column, convert, expected):
        of_query = values.setdefault(query, {})
        if document in of_query:
            raise repeated_document(line, query, document)
        of_query[document] = value
    return values


def _rows[Value](
    path: Path, columns: tuple[str, ...], column: str, convert: Callable[[str], Value], expected: str
) -> Iterator[tuple[Line, str, str, Value]]:
    line = None
    indices = [columns.index(name) for name in ("query", "document", column)]
    for line in read_lines(path):
        fields = line.columns(columns, separator=None)
        query, document, text = (fields[index] for index in indices)
        try:
            value = convert(text)
        except ValueError:
            raise line.error(f"{column} {shown(text)}", expected, "correct the line") from None
        yield line, query, document, value
    if line is None:
        raise ValueError(
            f"{path} has no lines; expected lines of {len(columns)} columns: {', '.join(columns)}"
        )


def _finite(text: str) -> float:
    # float() also accepts 1_000 and digits of other scripts, which other tools do not read.
    if "_" in text or not text.isascii() or not math.isfinite(value := float(text)):
        raise ValueError
    return value


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
