"""TREC runs and qrels, the text files that every evaluation tool reads."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyserini_ance.data.formats.lines import Line, column_roles, grade_of, read_lines, shown
from pyserini_ance.storage.files import whole_file, write_whole

Run = dict[str, dict[str, float]]
Qrels = dict[str, dict[str, int]]
Rows = Iterable[tuple[str, str, float]]
Hit = tuple[int, str, str, float]  # the number of its line, query, document, score

RANK_COLUMNS = ("query", "document", "rank")
RUN_COLUMNS = ("query", "Q0", "document", "rank", "score", "tag")
QRELS_COLUMNS = ("query", "0", "document", "grade")
BEIR_COLUMNS = ("query", "document", "grade")
_RANK = re.compile("0{0,8}[1-9][0-9]{0,8}")


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
        query, _, document, grade = line.cells(QRELS_COLUMNS, separator=None, filled=True)
        yield Judgment(line, query, document, grade_of(line, grade))


def beir_judgments(path: Path) -> Iterator[Judgment]:
    """Judgments of BEIR: three columns separated by tabs: query, document, grade; a header may name them in
    another order."""
    columns = list(BEIR_COLUMNS)
    for index, line in enumerate(read_lines(path)):
        if index == 0 and line.is_header():
            columns = [str(role) for role in column_roles(line.text.split("\t"))]
            if sorted(columns) != sorted(BEIR_COLUMNS):
                expected = "the names query-id, corpus-id and score, in any order"
                raise line.error("a header", expected, "correct or delete the line")
            continue
        cells = dict(zip(columns, line.cells(columns, filled=True), strict=True))
        yield Judgment(line, cells["query"], cells["document"], grade_of(line, cells["grade"]))


def first_line(path: Path) -> Line:
    """The first line that is not empty; an empty one if there is none. Raises OSError for a pipe."""
    if path.is_fifo():
        raise OSError(f"{path} is a pipe; expected a file, which can be read twice")
    return next(read_lines(path), Line(path, 1, ""))


def read_qrels(path: str | Path) -> Qrels:
    """Read grades by query and document; a grade above 0 is relevant.

    Lines have TREC's four columns, or BEIR's three, which are separated by tabs and may have a header; the
    first line that is not empty decides. Raises ValueError, with file and line, for a malformed line, a grade
    that is not a whole number, and two grades for one pair.
    """
    path = Path(path)
    first = first_line(path)
    is_trec = len(first.text.split()) == len(QRELS_COLUMNS) and not first.is_header()
    is_beir = not is_trec and len(first.text.split("\t")) == len(BEIR_COLUMNS)
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


def write_qrels(path: Path, qrels: Qrels) -> None:
    rows = (f"{query} 0 {one} {grade}\n" for query, of in qrels.items() for one, grade in of.items())
    write_whole(path, "".join(rows))


def two_grades(judgment: Judgment, earlier_grade: object, earlier: int) -> ValueError:
    """The error to raise for a judgment with another grade than line `earlier` has for the same pair."""
    pair = f"query {shown(judgment.query)} and document {shown(judgment.document)}"
    problem = f"grade {judgment.grade} for {pair}, which line {earlier} gave {earlier_grade}"
    return judgment.line.error(problem, "one grade for a pair", "delete one of the two lines")


def read_run(path: str | Path) -> Run:
    """Read scores by query and document from a TREC run, or from MS MARCO's `query document rank`.

    The rank column of a TREC run is ignored: as in trec_eval, scores alone rank. Raises ValueError, with file
    and line, for a malformed line, a score that is not a number, and a repeated document or rank.
    """
    is_ranked = has_ranks(path := Path(path))
    run: Run = {}
    ranks: set[tuple[str, float]] = set()
    for number, query, document, score in (read_ranks if is_ranked else read_hits)(path):
        scores = run.setdefault(query, {})
        if document in scores or (query, score) in ranks:
            raise repeated(Line(path, number, ""), query, document if document in scores else None, score)
        if is_ranked:
            ranks.add((query, score))
        scores[document] = score
    return run


def without_own(run: Run) -> Run:
    """The rankings without the document that has the id of their query."""
    return {query: {one: of[one] for one in of if one != query} for query, of in run.items()}


def has_ranks(path: Path) -> bool:
    """Whether the lines of a file have ranks without scores."""
    return len(first_line(path).text.split()) == len(RANK_COLUMNS)


def read_hits(path: Path) -> Iterator[Hit]:
    """Iterate over (line number, query, document, score) of a TREC run.

    Raises ValueError as `read_run` does, except for repeated documents.
    """
    if not first_line(path).text:
        raise _no_lines(path, RUN_COLUMNS)
    for line in read_lines(path):
        query, _, document, _, text, _ = line.cells(RUN_COLUMNS, separator=None, filled=True)
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        # float() also accepts 1_000 and digits of other scripts, which other tools do not read.
        if not math.isfinite(score) or "_" in text or not text.isascii():
            raise line.error(f"score {shown(text)}", "a finite number", "correct the line")
        yield line.number, query, document, score


def read_ranks(path: Path) -> Iterator[Hit]:
    """Like `read_hits`, of MS MARCO's `query document rank`; the score of a rank is its negative."""
    has_first = False
    for line in read_lines(path):
        query, document, rank = line.cells(RANK_COLUMNS, separator=None, filled=True)
        if not _RANK.fullmatch(rank):
            raise _rank_error(line, f"rank {shown(rank)}")
        has_first = has_first or int(rank) == 1
        yield line.number, query, document, -float(rank)
    if not has_first:
        raise _rank_error(Line(path, 1, ""), "a file without any rank 1")


def repeated(line: Line, query: str, document: str | None, score: float) -> ValueError:
    """The error to raise for a line whose document, or else whose rank, the negative of its score, an earlier
    line has for the same query."""
    if document is None:
        return _rank_error(line, f"rank {-score:.0f} again for query {shown(query)}")
    problem = f"document {shown(document)} again for query {shown(query)}"
    return line.error(problem, "each document once per query", "keep one line")


def _rank_error(line: Line, problem: str) -> ValueError:
    cure = "correct it; a file of triples (query, positive, negative) must have 'triples' in its name"
    return line.error(problem, "ranks counted from 1, each once per query", cure)


def _no_lines(path: Path, columns: tuple[str, ...]) -> ValueError:
    return ValueError(f"{path} has no lines; expected lines of {len(columns)} columns: {', '.join(columns)}")


def write_run(path: str | Path, rows: Rows, tag: str) -> None:
    """Write (query id, document id, score) rows in Pyserini's text form, atomically.

    Scores are written with the digits that tell each float32 from its neighbours: trec_eval ranks by float32.
    Rows must be ordered best first within a query. Raises ValueError for a score that is not finite.
    """
    ranks: Counter[str] = Counter()
    with whole_file(Path(path)) as file, np.errstate(over="ignore"):
        for query, document, given in rows:
            score = np.float32(given)
            if not math.isfinite(score):
                pair = f"document {shown(document)} for query {shown(query)}"
                raise ValueError(f"{path}: score {given} of {pair} is not a finite number in float32")
            ranks[query] += 1
            file.write(f"{query} Q0 {document} {ranks[query]} {score!s} {tag}\n".encode())
