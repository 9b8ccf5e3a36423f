"""The files that Pyserini encodes and searches: a JSONL corpus, topics and TREC qrels."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.data.formats.builder import Entry
from pyserini_ance.data.formats.lines import (
    JSON,
    Line,
    extension,
    files_in,
    json_id,
    json_text,
    shown,
    without_text,
)
from pyserini_ance.data.formats.topics import CorpusFormat

log = logging.getLogger(__name__)
ID_KEYS = ("id", "_id", "docid")


class PyseriniJsonl(CorpusFormat):
    """A JSONL corpus: one file, or a folder whose .jsonl, .ndjson and .json files are read in order of their
    names, also those of its folders.

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
        all_files = files_in(folder)
        files = [path for path in all_files if extension(path) in JSON]
        others = [path for path in all_files if extension(path) not in JSON]
        if not files:
            raise FileNotFoundError(
                f"no {', '.join(JSON)} file, plain or .gz, in {folder}; set `data.corpus` to another folder"
            )
        if others:
            log.warning(
                "%s: %d files are left out, such as %s; JSON files end in %s, plain or .gz",
                folder,
                len(others),
                others[0].relative_to(folder),
                ", ".join(JSON),
            )
        return files


def fields_of(line: Line, record: dict[str, Any], fields: Sequence[str]) -> dict[str, str]:
    """The fields of a record. As in Pyserini's own reader, separate keys take precedence over `contents`.

    Raises ValueError for a record whose text is under none of these keys.
    """
    if fields and all(name in record for name in fields):
        return {name: json_text(line, record, name) for name in fields}
    if not fields and "text" in record:
        return {name: json_text(line, record, name, required=name == "text") for name in ("title", "text")}
    if "contents" not in record:
        keys = ", ".join(f"`{name}`" for name in fields) or "`text`"
        cure = "in a recipe, name the keys in `data.fields`"
        raise without_text(line, record, f"{keys} or `contents`", cure)
    contents = json_text(line, record, "contents")
    if not fields:
        return {"title": "", "text": contents}
    values = contents.split("\n", len(fields) - 1)  # the last field takes all remaining lines
    if len(values) < len(fields):
        problem = f"contents of {len(values)} lines: {shown(contents)}"
        expected = f"a line each for {', '.join(fields)}"
        raise line.error(problem, expected, "correct `data.fields`, or remove it")
    return dict(zip(fields, values, strict=True))
