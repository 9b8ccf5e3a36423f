"""Rows of tables as MS MARCO, TREC and BEIR write them: entries and judgments."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pyserini_ance.data.formats.builder import Entry
from pyserini_ance.data.formats.format import Judgment
from pyserini_ance.data.formats.lines import Line, find_file, read_lines, shown, whole_number
from pyserini_ance.recipe.components import Settings


class TrecQueries(Settings):
    """The files of a split: queries as `qid TAB text`, and TREC qrels."""

    queries: Path
    """The table of queries."""
    qrels: Path
    """The TREC qrels file."""


def trec_splits(splits: Mapping[str, TrecQueries]) -> dict[str, tuple[Iterator[Entry], Iterator[Judgment]]]:
    """The queries and judgments of each split.

    Raises FileNotFoundError with the key of a missing file, before anything is read.
    """
    contents = {}
    for name, files in splits.items():
        queries = find_file(files.queries, f"data.splits.{name}.queries")
        qrels = find_file(files.qrels, f"data.splits.{name}.qrels")
        contents[name] = tsv_entries(queries), trec_judgments(qrels)
    return contents


def tsv_entries(path: Path) -> Iterator[Entry]:
    """Entries of a table without header: id and text, separated by one tab."""
    for line in read_lines(path):
        id, text = line.columns(("id", "text"))
        yield Entry(line, id, {"text": text})


def trec_judgments(path: Path) -> Iterator[Judgment]:
    """Judgments of TREC qrels: four columns separated by blanks or tabs. The second column is ignored."""
    for line in read_lines(path):
        query, _, document, grade = line.columns(("query id", "0", "document id", "grade"), separator=None)
        yield Judgment(line, query, document, _grade(line, grade))


def beir_judgments(path: Path) -> Iterator[Judgment]:
    """Judgments of BEIR: three columns separated by tabs. A first line that ends in `score` is the header."""
    for line in read_lines(path):
        query, document, grade = line.columns(("query-id", "corpus-id", "score"))
        if line.number > 1 or grade != "score":
            yield Judgment(line, query, document, _grade(line, grade))


def judged_only(queries: Iterable[Entry], judgments: list[Judgment]) -> tuple[list[Entry], list[Judgment]]:
    """Select the queries that a split judges, if one file has the queries of all splits."""
    judged = {judgment.query for judgment in judgments}
    return [entry for entry in queries if entry.id in judged], judgments


def _grade(line: Line, grade: str) -> int:
    try:
        return whole_number(grade)
    except ValueError:
        raise line.error(
            f"grade {shown(grade)}", "a whole number of at most nine digits", "correct the line"
        ) from None
