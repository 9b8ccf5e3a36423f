"""A Lucene index of Pyserini as the collection: a folder, or a prebuilt name; topics and qrels by their names there, or files."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from pyserini_ance.data.formats.dpr import literal_list
from pyserini_ance.data.formats.format import Entry, Format, Judgment, Parts
from pyserini_ance.data.formats.lines import Line, find_file
from pyserini_ance.data.formats.pyserini_jsonl import fields_of, topic_entries
from pyserini_ance.data.formats.tables import trec_judgments
from pyserini_ance.recipe.parts import Settings

WORKER = "pyserini_ance.pyserini_bridge.text_worker"  # a process: no Java lives in this one
LAST_BYTES = 3000
FILES = (".tsv", ".txt", ".jsonl", ".json", ".tsv.gz", ".txt.gz", ".jsonl.gz")


class NamedTopics(Settings):
    """A split: each a name that Pyserini knows (msmarco-passage-dev-subset, dl19-passage), or a file as of kind `pyserini_jsonl`.

    Questions with answers (dpr-nq-test) need no qrels, as there.
    """

    topics: str
    qrels: str | None = None


class PyseriniIndex(Format):
    """`index` is the folder of a Lucene index that stores its documents (built with --storeRaw or --storeContents), or the name of a
    prebuilt one (msmarco-v1-passage), which Pyserini downloads, once.

    A document is what was indexed: JSON as in `pyserini_jsonl`, or else plain text, with its `fields`: msmarco-v1-doc has [url, title,
    text], each on a line of its own. Blank ones are in no index.
    """

    kind: str = "pyserini_index"
    index: str
    fields: tuple[str, ...] = ()
    splits: dict[str, NamedTopics] = {}
    by_name: ClassVar[bool] = True

    def files(self) -> list[tuple[str, Path]]:
        named = [("data.index", self.index)] if _is_folder(self.index) else []
        for name, split in self.splits.items():
            named += [(f"data.splits.{name}.{part}", value) for part, value in split if value and _is_file(value)]
        return [(key, Path(value)) for key, value in named]

    def parts(self) -> Parts:
        asked = [{part: value} for split in self.splits.values() for part, value in split if value and not _is_file(value)]
        worker = _Worker({"index": str(Path(self.index).expanduser()) if _is_folder(self.index) else self.index, "sets": asked})
        splits = {
            name: (_topics(name, split.topics, worker), _qrels(name, split.qrels, worker) if split.qrels else None)
            for name, split in self.splits.items()
        }
        return Parts(_documents(Path(self.index), worker.records(), self.fields), splits)


def _is_folder(index: str) -> bool:
    return "/" in index or Path(index).is_dir()


def _is_file(value: str) -> bool:
    return "/" in value or value.endswith(FILES)


class _Worker:
    """The records that the other process gives, part after part: they are to be read in the order in which they were asked for."""

    def __init__(self, job: dict[str, Any]):
        self._command = [sys.executable, "-m", WORKER, json.dumps(job)]
        self._process: subprocess.Popen | None = None

    def records(self) -> Iterator[dict[str, Any]]:
        """Of the next part. Raises RuntimeError with the last words of a process that failed."""
        if self._process is None:
            self._words = tempfile.TemporaryFile()
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._words)
        try:
            for line in self._process.stdout:
                if (record := json.loads(line)) == {}:
                    break
                yield record
            else:
                raise self._failed()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def _failed(self) -> RuntimeError:
        status = self._process.wait()
        self._words.seek(0)
        words = self._words.read()[-LAST_BYTES:].decode(errors="replace").strip()
        return RuntimeError(f"reading by Pyserini failed (exit status {status}):\n{words}")


def _documents(index: Path, records: Iterable[dict[str, Any]], fields: Sequence[str] = ()) -> Iterator[Entry]:
    for number, record in zip(count(1), records):
        line, stored = Line(index, number, ""), record["raw"] or record["contents"]
        if stored is None:
            found = f"document {record['id']!r} of this index has no text"
            raise line.error(found, "an index that stores its documents", "build it with --storeRaw, or name the collection's own files")
        indexed = line._replace(text=stored).json() if stored.startswith("{") else {"contents": stored}
        yield Entry(line, record["id"], fields_of(line, indexed, fields))


def _topics(split: str, value: str, worker: _Worker) -> Iterator[Entry]:
    key = f"data.splits.{split}.topics"
    return topic_entries(find_file(Path(value), key), key) if _is_file(value) else _named_topics(Path(value), worker)


def _named_topics(name: Path, worker: _Worker) -> Iterator[Entry]:
    for number, record in zip(count(1), worker.records()):
        line, answers = Line(name, number, ""), record.get("answers")
        if "title" not in record:
            there = ", ".join(key for key in record if key != "id")
            raise line.error(f"a topic with the fields {there}", "`title`", "write the topics into a file, `qid TAB text`, and name that")
        yield Entry(line, record["id"], {"text": record["title"]}, None if answers is None else literal_list(line, answers))


def _qrels(split: str, value: str, worker: _Worker) -> Iterator[Judgment]:
    if _is_file(value):
        yield from trec_judgments(find_file(Path(value), f"data.splits.{split}.qrels"))
    for record in () if _is_file(value) else worker.records():
        yield from trec_judgments(Path(record["file"]))
