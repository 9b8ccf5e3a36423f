"""Rows of tables, as MS MARCO, TREC and BEIR write them: entries and judgments."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pyserini_ance.data.formats.format import Entry, Judgment
from pyserini_ance.data.formats.lines import Line, find_file, read_lines, shown, whole_number
from pyserini_ance.recipe.parts import Settings


class TrecQueries(Settings):
    """A split: `qid TAB text`, and TREC qrels."""

    queries: Path
    qrels: Path


def trec_splits(splits: Mapping[str, TrecQueries]) -> dict[str, tuple[Iterator[Entry], Iterator[Judgment]]]:
    """Queries and judgments of each split. Raises FileNotFoundError, before anything is read, with the key of a missing file."""
    found = {}
    for name, files in splits.items():
        queries = find_file(files.queries, f"data.splits.{name}.queries")
        qrels = find_file(files.qrels, f"data.splits.{name}.qrels")
        found[name] = tsv_entries(queries), trec_judgments(qrels)
    return found


def tsv_entries(path: Path) -> Iterator[Entry]:
    """Id and text, separated by one tab; no header."""
    for line in read_lines(path):
        id, text = line.columns(("id", "text"))
        yield Entry(line, id, {"text": text})


def trec_judgments(path: Path) -> Iterator[Judgment]:
    """Four columns separated by blanks or tabs; the second says nothing, and differs from file to file."""
    for line in read_lines(path):
        query, _, document, grade = line.columns(("query id", "0", "document id", "grade"), separator=None)
        yield Judgment(line, query, document, _grade(line, grade))


def beir_judgments(path: Path) -> Iterator[Judgment]:
    """Three columns separated by tabs; a first line that ends in `score` is the header."""
    for line in read_lines(path):
        query, document, grade = line.columns(("query-id", "corpus-id", "score"))
        if line.number > 1 or grade != "score":
            yield Judgment(line, query, document, _grade(line, grade))


def judged_only(queries: Iterable[Entry], judgments: list[Judgment]) -> tuple[list[Entry], list[Judgment]]:
    """A split of a set that keeps the queries of all splits in one place: what this one does not judge belongs to another."""
    judged = {judgment.query for judgment in judgments}
    return [entry for entry in queries if entry.id in judged], judgments


def _grade(line: Line, grade: str) -> int:
    try:
        return whole_number(grade)
    except ValueError:
        raise line.error(f"grade {shown(grade)}", "a whole number of at most nine digits", "correct the line") from None
