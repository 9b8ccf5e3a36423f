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

    def files(self) -> list[tuple[str, Path]]:
        qrels = [(f"data.splits.{name}", self.folder / path) for name, path in self.splits.items()]
        return [("data.folder", self.folder / "corpus.jsonl"), ("data.folder", self.folder / "queries.jsonl"), *qrels]

    def parts(self) -> Parts:
        corpus, queries, *qrels = (find_file(path, key) for key, path in self.files())
        entries = list(_questions(queries))
        splits = {name: judged_only(entries, list(beir_judgments(path))) for name, path in zip(self.splits, qrels, strict=True)}
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
