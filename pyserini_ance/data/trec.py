"""TREC runs and qrels, the text files that every evaluation tool reads."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyserini_ance.data.formats.lines import Line, is_writable, shown, whole_number
from pyserini_ance.data.formats.text_files import read_lines
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


def best_first(scores: Mapping[str, float]) -> list[str]:
    """The documents of a query in trec_eval's order: by score in float32, ties by descending id."""
    rounded = np.fromiter(scores.values(), np.float32, len(scores)).tolist()
    return [document for _, document in sorted(zip(rounded, scores, strict=True), reverse=True)]


class Judgment(NamedTuple):
    """A row of a qrels file, whose two ids are not looked up yet."""

    line: Line
    query: str
    document: str
    grade: int


def trec_judgments(path: Path) -> Iterator[Judgment]:
    """Judgments of TREC qrels: four columns separated by blanks or tabs. The second column is ignored."""
    for line in read_lines(path):
        query, _, document, grade = line.columns(QRELS_COLUMNS, separator=None)
        yield Judgment(line, query, document, _grade(line, grade))


def beir_judgments(path: Path) -> Iterator[Judgment]:
    """Judgments of BEIR: three columns separated by tabs. A first line that ends in `score` is the header."""
    for index, line in enumerate(read_lines(path)):
        query, document, grade = line.columns(BEIR_COLUMNS)
        if index > 0 or grade != BEIR_HEADER:
            yield Judgment(line, query, document, _grade(line, grade))


def _grade(line: Line, grade: str) -> int:
    try:
        return whole_number(grade)
    except ValueError:
        expected = "a whole number of at most nine digits"
        raise line.error(f"grade {shown(grade)}", expected, "correct the line") from None


def read_qrels(path: str | Path) -> Qrels:
    """Read grades by query and document; a grade above 0 is relevant.

    Lines have TREC's four columns, or BEIR's three, which are separated by tabs and may have a header; the
    first line that is not empty decides. Raises ValueError, with file and line, for a malformed line, a grade
    that is not a whole number, and two grades for one pair.
    """
    path = Path(path)
    first = next((line.text for line in read_lines(path)), "")
    is_beir = len(first.split()) != len(QRELS_COLUMNS) and len(first.split("\t")) == len(BEIR_COLUMNS)
    read = beir_judgments if is_beir else trec_judgments
    qrels: Qrels = {}
    for judgment in read(path):
        grade = qrels.setdefault(judgment.query, {}).setdefault(judgment.document, judgment.grade)
        if grade != judgment.grade:
            earlier = next(one for one in read(path) if one[1:3] == judgment[1:3])
            raise two_grades(judgment, grade, earlier.line.number)
    if not qrels:
        raise _no_lines(path, BEIR_COLUMNS if is_beir else QRELS_COLUMNS)
    return qrels


def two_grades(judgment: Judgment, earlier_grade: object, earlier: int) -> ValueError:
    """The error to raise for a judgment with another grade than line `earlier` has for the same pair."""
    pair = f"query {shown(judgment.query)} and document {shown(judgment.document)}"
    problem = f"grade {judgment.grade} for {pair}, which line {earlier} gave {earlier_grade}"
    return judgment.line.error(problem, "one grade for a pair", "delete one of the two lines")


def read_run(path: str | Path) -> Run:
    """Read scores by query and document. The rank column is ignored: as in trec_eval, scores alone rank.

    Raises ValueError, with file and line, for a malformed line, a score that is not a number and a repeated
    document.
    """
    run: Run = {}
    for number, query, document, score in read_hits(Path(path)):
        scores = run.setdefault(query, {})
        if document in scores:
            raise repeated_document(Line(Path(path), number, ""), query, document)
        scores[document] = score
    return run


def read_hits(path: Path) -> Iterator[Hit]:
    """Iterate over (line number, query, document, score) of a run.

    Raises ValueError as `read_run` does, except for repeated documents.
    """
    is_empty = True
    for line in read_lines(path):
        query, _, document, _, text, _ = line.columns(RUN_COLUMNS, separator=None)
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        # float() also accepts 1_000 and digits of other scripts, which other tools do not read.
        if not math.isfinite(score) or "_" in text or not text.isascii():
            raise line.error(f"score {shown(text)}", "a finite number", "correct the line")
        is_empty = False
        yield line.number, query, document, score
    if is_empty:
        raise _no_lines(path, RUN_COLUMNS)


def _no_lines(path: Path, columns: tuple[str, ...]) -> ValueError:
    return ValueError(f"{path} has no lines; expected lines of {len(columns)} columns: {', '.join(columns)}")


def repeated_document(line: Line, query: str, document: str) -> ValueError:
    """The error to raise for a line whose document an earlier line has for the same query."""
    problem = f"document {shown(document)} again for query {shown(query)}"
    return line.error(problem, "each document once per query", "keep one line")


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


def _check_writable(query: str, document: str, score: float, path: str | Path) -> None:
    if not math.isfinite(score):
        pair = f"document {shown(document)} for query {shown(query)}"
        raise ValueError(f"{path}: score {score} of {pair} is not a finite number")
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
