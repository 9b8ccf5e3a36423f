"""A Lucene index of Pyserini as a collection, with topics and qrels that Pyserini knows by name, or files."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

from pyserini_ance.data.formats.builder import Entry
from pyserini_ance.data.formats.dpr import literal_list
from pyserini_ance.data.formats.format import Format, RawData
from pyserini_ance.data.formats.lines import Line
from pyserini_ance.data.formats.pyserini_jsonl import fields_of, topic_entries
from pyserini_ance.data.formats.text_files import find_file
from pyserini_ance.data.trec import Judgment, trec_judgments
from pyserini_ance.recipe.components import Settings

WORKER = "pyserini_ance.pyserini_bridge.text_worker"  # a subprocess, so that this process starts no Java
LAST_BYTES = 3000
FILES = (".tsv", ".txt", ".jsonl", ".json", ".tsv.gz", ".txt.gz", ".jsonl.gz")


class NamedTopics(Settings):
    """The topics and qrels of a split.

    Each is a name that Pyserini knows (msmarco-passage-dev-subset, dl19-passage), or a file as for kind
    `pyserini_jsonl`. Questions with answers (dpr-nq-test) need no qrels, as there.
    """

    topics: str
    """Topics by their name in Pyserini, or a file."""
    qrels: str | None = None
    """Qrels by their name in Pyserini, or a file; null: none."""


class PyseriniIndex(Format):
    """The documents of a Lucene index.

    `index` is the folder of an index that stores its documents (built with --storeRaw or --storeContents), or
    the name of a prebuilt index (msmarco-v1-passage), which Pyserini downloads once. A document is the
    indexed text: JSON as in `pyserini_jsonl`, or plain text whose lines are its `fields`: msmarco-v1-doc has
    [url, title, text]. Indexes contain no blank documents.
    """

    kind: str = "pyserini_index"
    index: str
    """The folder of an index, or the name of a prebuilt index."""
    fields: tuple[str, ...] = ()
    """Names for the lines of a document; empty: documents are JSON."""
    splits: dict[str, NamedTopics] = {}  # noqa: RUF012  pydantic copies defaults
    """The topics and qrels of each split."""
    by_name: ClassVar[bool] = True

    @property
    def names_or_paths(self) -> frozenset[str]:
        return frozenset({"index"})

    def files(self) -> list[tuple[str, Path]]:
        paths = [("data.index", self.index)] if _is_folder(self.index) else []
        for name, split in self.splits.items():
            paths += [
                (f"data.splits.{name}.{kind}", value) for kind, value in split if value and _is_file(value)
            ]
        return [(key, Path(value)) for key, value in paths]

    def raw_data(self) -> RawData:
        named = [
            {kind: value}
            for split in self.splits.values()
            for kind, value in split
            if value and not _is_file(value)
        ]
        index = str(Path(self.index).expanduser()) if _is_folder(self.index) else self.index
        worker = _Worker({"index": index, "sets": named})
        splits = {
            name: (
                _topics(name, split.topics, worker),
                _qrels(name, split.qrels, worker) if split.qrels else None,
            )
            for name, split in self.splits.items()
        }
        return RawData(_documents(Path(self.index), worker.records(), self.fields), splits)


def _is_folder(index: str) -> bool:
    return "/" in index or Path(index).is_dir()


def _is_file(value: str) -> bool:
    return "/" in value or value.endswith(FILES)


class _Worker:
    """A subprocess that reads records with Pyserini, set after set; read them in the order of the job.

    The first set is the documents of the index; topics and qrels follow.
    """

    def __init__(self, job: dict[str, Any]):
        self._command = [sys.executable, "-m", WORKER, json.dumps(job)]
        self._process: subprocess.Popen | None = None

    def records(self) -> Iterator[dict[str, Any]]:
        """Iterate over the records of the next set.

        Raises RuntimeError with the end of the process's error output if it fails.
        """
        if self._process is None:
            # Not a pipe: nobody reads the errors while records are read.
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  the file lives as long as the process
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors
            )
        process = self._process
        assert process.stdout is not None  # a pipe
        try:
            for line in process.stdout:
                if (record := json.loads(line)) == {}:
                    break
                yield record
            else:
                raise self._failure(process.wait())
        except BaseException:
            process.kill()
            process.wait()
            raise

    def _failure(self, status: int) -> RuntimeError:
        self._errors.seek(0)
        output = self._errors.read()[-LAST_BYTES:].decode(errors="replace").strip()
        return RuntimeError(f"reading with Pyserini failed (exit status {status}):\n{output}")


def _documents(index: Path, records: Iterable[dict[str, Any]], fields: Sequence[str] = ()) -> Iterator[Entry]:
    for number, record in zip(count(1), records):
        line, stored = Line(index, number, ""), record["raw"] or record["contents"]
        if stored is None:
            problem = f"document {record['id']!r} of this index has no text"
            cure = "build it with --storeRaw, or use the collection's own files"
            raise line.error(problem, "an index that stores its documents", cure)
        indexed = line._replace(text=stored).json() if stored.startswith("{") else {"contents": stored}
        yield Entry(line, record["id"], fields_of(line, indexed, fields))


def _topics(split: str, value: str, worker: _Worker) -> Iterator[Entry]:
    key = f"data.splits.{split}.topics"
    return (
        topic_entries(find_file(Path(value), key), key)
        if _is_file(value)
        else _named_topics(Path(value), worker)
    )


def _named_topics(name: Path, worker: _Worker) -> Iterator[Entry]:
    for number, record in zip(count(1), worker.records()):
        line, answers = Line(name, number, ""), record.get("answers")
        if "title" not in record:
            fields = ", ".join(key for key in record if key != "id")
            cure = "write the topics into a file, `qid TAB text`, and use that file"
            raise line.error(f"a topic with the fields {fields}", "`title`", cure)
        yield Entry(
            line,
            record["id"],
            {"text": record["title"]},
            None if answers is None else literal_list(line, answers),
        )


def _qrels(split: str, value: str, worker: _Worker) -> Iterator[Judgment]:
    if _is_file(value):
        yield from trec_judgments(find_file(Path(value), f"data.splits.{split}.qrels"))
    for record in () if _is_file(value) else worker.records():
        yield from trec_judgments(Path(record["file"]))
