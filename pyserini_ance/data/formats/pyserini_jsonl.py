"""The files that Pyserini encodes and searches: a JSONL corpus, topics and TREC qrels."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.data.formats.builder import Entry, tsv_entries
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import (
    Line,
    extension,
    find_file,
    json_answers,
    json_id,
    json_text,
    read_lines,
    shown,
)
from pyserini_ance.data.trec import trec_judgments
from pyserini_ance.recipe.components import Settings

ID_KEYS = ("id", "_id", "docid")


class Topics(Settings):
    """The files of a split: topics, and TREC qrels.

    Topics are lines `qid TAB text` (.tsv, .txt) or {"id", "title"} (.jsonl, where questions have "answers").
    Questions with answers need no qrels; such a split can be evaluated by the answers that passages contain
    (Success@k).
    """

    topics: Path
    """The topics file."""
    qrels: Path | None = None
    """The TREC qrels file; null: none."""


class PyseriniJsonl(Format):
    """A JSONL corpus: one file, or a folder whose .jsonl and .json files are read in order of their names.

    Hidden files of a folder are read too, as in Anserini.

    A record has its id under `id`, `_id` or `docid`, and `text` with or without `title`, or `contents`. For
    other records, set `fields`, like `--fields` of `pyserini.encode`: keys of the record, or names for the
    lines of its `contents`, the last of which takes all remaining lines. MS MARCO's documents have [url,
    title, text].
    """

    kind: str = "pyserini_jsonl"
    corpus: Path
    """A JSONL file, or a folder of them."""
    fields: tuple[str, ...] = ()
    """Keys of a record, or names for the lines of its `contents`; empty: recognized by its keys."""
    splits: dict[str, Topics] = {}  # noqa: RUF012  pydantic copies defaults
    """The files of each split."""

    def raw_data(self) -> RawData:
        corpus = _corpus_files(self.corpus)
        splits = {}
        for name, files in self.splits.items():
            topics = find_file(files.topics, f"data.splits.{name}.topics")
            qrels = find_file(files.qrels, f"data.splits.{name}.qrels") if files.qrels else None
            splits[name] = (
                topic_entries(topics, f"data.splits.{name}.topics"),
                trec_judgments(qrels) if qrels else None,
            )
        return RawData((self._document(line) for path in corpus for line in read_lines(path)), splits)

    def _document(self, line: Line) -> Entry:
        record = line.json()
        return Entry(line, json_id(line, record, *ID_KEYS), fields_of(line, record, self.fields))


def _corpus_files(corpus: Path) -> list[Path]:
    folder = corpus.expanduser()
    if not folder.is_dir():
        return [find_file(corpus, "data.corpus")]
    files = sorted(path for path in folder.iterdir() if extension(path) in (".jsonl", ".json"))
    if not files:
        raise FileNotFoundError(
            f"no .jsonl or .json file, plain or .gz, in {folder}; set `data.corpus` to another folder"
        )
    return files


def fields_of(line: Line, record: dict[str, Any], fields: Sequence[str]) -> dict[str, str]:
    """The fields of a record. As in Pyserini's own reader, separate keys take precedence over `contents`.

    Raises ValueError for a record whose text is under other keys. One with an id alone has an empty text.
    """
    if fields and not all(name in record for name in fields):
        contents = json_text(line, record, "contents")
        values = contents.split("\n", len(fields) - 1)  # the last field takes all remaining lines
        if len(values) < len(fields):
            problem = f"contents of {len(values)} lines: {shown(contents)}"
            expected = f"a line each for {', '.join(fields)}"
            raise line.error(problem, expected, "correct `data.fields`, or remove it")
        return dict(zip(fields, values, strict=True))
    if not fields and "text" not in record and "contents" not in record and record.keys() - set(ID_KEYS):
        problem = f"a record with the keys {shown(', '.join(record))}"
        cure = "rename the key of its text, or, in a recipe, name the keys in `data.fields`"
        raise line.error(problem, "its text under `text` or `contents`", cure)
    if fields or "text" in record:
        return {name: json_text(line, record, name) for name in fields or ("title", "text")}
    return {"title": "", "text": json_text(line, record, "contents")}


def topic_entries(path: Path, key: str) -> Iterator[Entry]:
    """The topics of a file, whose extension decides how it is read; `key` is its recipe key."""
    if extension(path) in (".tsv", ".txt"):
        return tsv_entries(path)
    if extension(path) == ".jsonl":
        return _json_topics(path)
    expected = ".tsv, .txt or .jsonl, plain or .gz"
    raise ValueError(
        f"topics {path}: extension {extension(path)!r}; expected {expected}; set `{key}` to such a file"
    )


def _json_topics(path: Path) -> Iterator[Entry]:
    for line in read_lines(path):
        record = line.json()
        answers = json_answers(line, record, "answers", "answer")
        yield Entry(line, json_id(line, record, "id"), {"text": json_text(line, record, "title")}, answers)
