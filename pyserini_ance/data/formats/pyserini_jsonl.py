"""The files that Pyserini encodes and searches: a JSONL corpus, topics and TREC qrels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.data.formats.builder import Entry
from pyserini_ance.data.formats.lines import Line, extension, json_id, json_text, shown
from pyserini_ance.data.formats.topics import CorpusFormat

ID_KEYS = ("id", "_id", "docid")


class PyseriniJsonl(CorpusFormat):
    """A JSONL corpus: one file, or a folder whose .jsonl and .json files are read in order of their names.

    Hidden files of a folder are read too, as in Anserini.

    A record has its id under `id`, `_id` or `docid`, and `text` with or without `title`, or `contents`. For
    other records, set `fields`, like `--fields` of `pyserini.encode`: keys of the record, or names for the
    lines of its `contents`, the last of which takes all remaining lines. MS MARCO's documents have [url,
    title, text].
    """

    kind: str = "pyserini_jsonl"
    fields: tuple[str, ...] = ()
    """Keys of a record, or names for the lines of its `contents`; empty: recognized by its keys."""

    def document(self, line: Line) -> Entry:
        record = line.json()
        return Entry(line, json_id(line, record, *ID_KEYS), fields_of(line, record, self.fields))

    def corpus_files(self) -> list[Path]:
        folder = self.corpus.expanduser()
        if not folder.is_dir():
            return super().corpus_files()
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
