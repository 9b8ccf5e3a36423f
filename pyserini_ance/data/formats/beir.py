"""The BEIR layout: corpus.jsonl, queries.jsonl, and one qrels table a split."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyserini_ance.data.formats.format import Entry, Format, Parts
from pyserini_ance.data.formats.lines import Line, find_file, json_answers, json_id, json_text, read_lines
from pyserini_ance.data.formats.tables import beir_judgments, judged_only


class Beir(Format):
    """A folder in the layout of Thakur et al. 2021, arXiv:2104.08663; `splits` names its qrels files.

    Questions may have `answers`, a list of strings.
    """

    kind: str = "beir"
    folder: Path
    splits: dict[str, Path] = {name: Path(f"qrels/{name}.tsv") for name in ("train", "dev", "test")}

    def parts(self) -> Parts:
        corpus = find_file(self.folder / "corpus.jsonl", "data.folder")
        queries = find_file(self.folder / "queries.jsonl", "data.folder")
        qrels = {name: find_file(self.folder / path, f"data.splits.{name}") for name, path in self.splits.items()}
        entries = list(_questions(queries))
        splits = {name: judged_only(entries, list(beir_judgments(path))) for name, path in qrels.items()}
        return Parts(_documents(corpus), splits, [corpus])


def _documents(path: Path) -> Iterator[Entry]:
    for line in read_lines(path):
        yield _entry(line, line.json(), "title", "text")


def _questions(path: Path) -> Iterator[Entry]:
    for line in read_lines(path):
        record = line.json()
        yield _entry(line, record, "text")._replace(answers=json_answers(line, record, "answers"))


def _entry(line: Line, record: dict[str, Any], *fields: str) -> Entry:
    return Entry(line, json_id(line, record, "_id"), {name: json_text(line, record, name) for name in fields})
