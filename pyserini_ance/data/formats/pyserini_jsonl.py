"""What Pyserini encodes and searches: a JSONL corpus, topics, and TREC qrels."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.data.formats.format import Entry, Format, Parts
from pyserini_ance.data.formats.lines import Line, extension, find_file, json_answers, json_id, json_text, read_lines, shown
from pyserini_ance.data.formats.tables import trec_judgments, tsv_entries
from pyserini_ance.recipe.parts import Settings


class Topics(Settings):
    """A split: topics as `qid TAB text` (.tsv, .txt) or {"id", "title"} (.jsonl, questions with "answers"), and TREC qrels, which
    questions with answers need not have: then it can be tested on by the answers that passages hold (Success@k).
    """

    topics: Path
    qrels: Path | None = None


class PyseriniJsonl(Format):
    """`corpus` is one file, or a folder whose .jsonl and .json files are read in the order of their names.

    A record has its id under `id`, `_id` or `docid`, and `text` with or without `title`, or `contents`. Of other records say the
    `fields`, as `--fields` does for `pyserini.encode`: keys of the record, or the lines of its `contents`, of which the last field has
    all that are left. For MS MARCO's documents these are [url, title, text].
    """

    kind: str = "pyserini_jsonl"
    corpus: Path
    fields: tuple[str, ...] = ()
    splits: dict[str, Topics] = {}

    def parts(self) -> Parts:
        corpus = _corpus_files(self.corpus)
        splits = {}
        for name, files in self.splits.items():
            topics = find_file(files.topics, f"data.splits.{name}.topics")
            qrels = find_file(files.qrels, f"data.splits.{name}.qrels") if files.qrels else None
            splits[name] = topic_entries(topics, f"data.splits.{name}.topics"), trec_judgments(qrels) if qrels else None
        return Parts(_documents(corpus, self.fields), splits, corpus)


def _corpus_files(corpus: Path) -> list[Path]:
    folder = corpus.expanduser()
    if not folder.is_dir():
        return [find_file(corpus, "data.corpus")]
    files = sorted(path for path in folder.iterdir() if extension(path) in (".jsonl", ".json"))
    if not files:
        raise FileNotFoundError(f"no .jsonl or .json file, plain or .gz, in {folder}; set `data.corpus` to another")
    return files


def _documents(files: list[Path], fields: Sequence[str]) -> Iterator[Entry]:
    for path in files:
        for line in read_lines(path):
            record = line.json()
            id = json_id(line, record, "id", "_id", "docid")
            yield Entry(line, id, fields_of(line, record, fields))


def fields_of(line: Line, record: dict[str, Any], fields: Sequence[str]) -> dict[str, str]:
    """As in Pyserini's own reader, separate fields count before `contents`, which holds them all."""
    if fields:
        separate = all(name in record for name in fields)
        return {name: json_text(line, record, name) for name in fields} if separate else lines_of(line, json_text(line, record, "contents"), fields)
    if "text" in record:
        return {"title": json_text(line, record, "title"), "text": json_text(line, record, "text")}
    return {"title": "", "text": json_text(line, record, "contents")}


def lines_of(line: Line, contents: str, fields: Sequence[str]) -> dict[str, str]:
    """A line each, the last field all that are left. Raises ValueError for too few."""
    values = contents.split("\n", len(fields) - 1)
    if len(values) < len(fields):
        cure = "correct `data.fields`, or leave it out"
        raise line.error(f"contents of {len(values)} lines: {shown(contents)}", f"a line each for {', '.join(fields)}", cure)
    return dict(zip(fields, values, strict=True))


def topic_entries(path: Path, key: str) -> Iterator[Entry]:
    if extension(path) in (".tsv", ".txt"):
        return tsv_entries(path)
    if extension(path) == ".jsonl":
        return _json_topics(path)
    expected = ".tsv, .txt or .jsonl, plain or .gz"
    raise ValueError(f"topics {path}: extension {extension(path)!r}; expected {expected}; set `{key}` to such a file")


def _json_topics(path: Path) -> Iterator[Entry]:
    for line in read_lines(path):
        record = line.json()
        answers = json_answers(line, record, "answers", "answer")
        yield Entry(line, json_id(line, record, "id"), {"text": json_text(line, record, "title")}, answers)
