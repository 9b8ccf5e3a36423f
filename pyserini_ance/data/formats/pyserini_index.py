"""A Lucene index of Pyserini as a collection, with topics and qrels that Pyserini knows by name, or files."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pyserini_ance.data.formats.dpr import literal_list
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import JSON, Line, extension, find_file
from pyserini_ance.data.formats.records import Entry, Record
from pyserini_ance.data.formats.topics import Topics, fields_of, topic_entries
from pyserini_ance.data.trec import Judgment, trec_judgments

WORKER = "pyserini_ance.pyserini_bridge.text_worker"
LAST_BYTES = 3000
FILES = (".tsv", ".txt", *JSON)


class PyseriniIndex(Format):
    """The documents of a Lucene index.

    `index` is the folder of an index that stores its documents (built with --storeRaw or --storeContents), or
    the name of a prebuilt index (msmarco-v1-passage), which Pyserini downloads once. A document is its stored
    JSON, as in `pyserini_jsonl`, or else the indexed text, if that is stored, or else its source with its
    markup; the lines of a text are its `fields`: msmarco-v1-doc has [url, title, text]. Topics and qrels are
    files, or names that Pyserini knows (msmarco-passage-dev-subset, dl19-passage, dpr-nq-test).
    """

    kind: str = "pyserini_index"
    index: str
    """The folder of an index, or the name of a prebuilt index."""
    fields: tuple[str, ...] = ()
    """Names for the lines of a document; empty: documents are JSON."""
    splits: dict[str, Topics] = {}  # noqa: RUF012  pydantic copies defaults
    """The topics and qrels of each split, as files or by their names in Pyserini."""
    by_name: ClassVar[bool] = True
    names_or_paths = frozenset({"index"})

    def files(self) -> list[tuple[str, Path]]:
        paths = [("data.index", Path(self.index))] if _is_folder(self.index) else []
        for name, split in self.splits.items():
            named = (("topics", split.topics), ("qrels", split.qrels))
            paths += [(f"data.splits.{name}.{key}", path) for key, path in named if path and _is_file(path)]
        return paths

    def raw_data(self) -> RawData:
        index = str(Path(self.index).expanduser()) if _is_folder(self.index) else self.index
        splits = {}
        for name, split in self.splits.items():
            key = f"data.splits.{name}"
            asked = split.topics
            named = None if _is_file(asked) else named_topics(asked, _records("topics", str(asked)))
            topics = topic_entries(asked, f"{key}.topics") if named is None else named
            splits[name] = topics, _qrels(split.qrels, f"{key}.qrels") if split.qrels else None
        return RawData(stored_documents(Path(self.index), _records("index", index), self.fields), splits)


def _is_folder(index: str) -> bool:
    return "/" in index or Path(index).is_dir()


def _is_file(path: Path) -> bool:
    return "/" in str(path) or extension(path) in FILES or path.is_file()


def _records(kind: str, name: str) -> Iterator[dict[str, Any]]:
    """Iterate over the records of an index, of topics or of qrels.

    A subprocess reads them: this process starts no Java. Raises RuntimeError with its error if it fails.
    """
    command = [sys.executable, "-P", "-m", WORKER, kind, name]
    with (
        tempfile.TemporaryFile() as errors,  # not a pipe: nobody reads the errors while records are read
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None  # a pipe
        try:
            yield from map(json.loads, process.stdout)
        except BaseException:
            process.kill()
            raise
        if status := process.wait():
            errors.seek(0)
            output = errors.read()[-LAST_BYTES:].decode(errors="replace").rpartition("\nerror: ")[2].strip()
            own = "the folder of a whole Lucene index" if kind == "index" else "a file"
            expected = f"expected {own}, or a name that Pyserini knows"
            raise RuntimeError(f"{kind} {name!r}: {output} (exit status {status}); {expected}")


def stored_documents(
    index: Path, records: Iterable[dict[str, Any]], fields: Sequence[str] = ()
) -> Iterator[Entry]:
    """The documents of an index. Raises ValueError for one whose text is not stored."""
    for number, record in enumerate(records, start=1):
        line, raw, contents = Line(index, number, ""), record["raw"] or "", record["contents"]
        is_json = raw.startswith("{")  # only the source is JSON; a text may begin with a brace
        if not (stored := raw if is_json else contents or raw) and contents is None:
            problem = f"document {record['id']!r} of this index has no text"
            cure = "build it with --storeRaw, or use the collection's own files"
            raise line.error(problem, "an index that stores its documents", cure)
        values = line._replace(text=stored).json() if is_json else {"contents": stored}
        yield Entry(line, record["id"], fields_of(Record(line, values), fields))


def named_topics(name: Path, records: Iterable[dict[str, Any]]) -> Iterator[Entry]:
    """The queries of topics. Raises ValueError for one without a title."""
    for number, values in enumerate(records, start=1):
        record = Record(Line(name, number, ""), values)
        if "title" not in values:
            raise record.without_text("`title`", "write the topics into a file, `qid TAB text`, and use it")
        answers = values.get("answers")
        answers = None if answers is None else literal_list(record.line, answers)
        yield Entry(record.line, values["id"], {"text": values["title"]}, answers)


def _qrels(path: Path, key: str) -> Iterator[Judgment]:
    named = (Path(one["file"]) for one in _records("qrels", str(path)))
    yield from trec_judgments(find_file(path, key) if _is_file(path) else next(named))
