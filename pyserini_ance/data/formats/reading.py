"""The reading of documents into the cache: part by part, so that a killed reading continues.

A reading has a folder in the cache with the texts so far and the JSON file that describes its last finished
part. `Format.read` continues after this part if each document is one line of an unchanged file.
"""

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyserini_ance.data.collection import Texts
from pyserini_ance.data.collection_cache import (
    COLLECTIONS_FOLDER,
    DOCUMENTS_PER_PART,
    READER_VERSION,
    TextsWriter,
    file_states,
    open_texts,
)
from pyserini_ance.data.formats.builder import Entry, LineDocuments, is_empty
from pyserini_ance.data.formats.lines import Line, LineOrigins
from pyserini_ance.data.spilled_numbers import SpilledNumbers
from pyserini_ance.data.string_arrays import STRINGS_PER_BLOCK, RowsOfIds, Strings, first_repeat
from pyserini_ance.storage.files import (
    beside,
    copy_whole,
    read_json_object,
    remove,
    remove_leftovers,
    sha256_json,
    unfinished,
    write_json,
)
from pyserini_ance.storage.locks import LockHeld, locked

PART_FILE = "part.json"
KEPT_SECONDS = 24 * 3600  # how long an interrupted reading waits to be continued
log = logging.getLogger(__name__)


class Reading(NamedTuple):
    """A new or interrupted reading: the folder that receives the documents, and the file about its parts."""

    documents: Path
    part_file: Path


@contextmanager
def reading(cache: Path, settings: Mapping[str, Any]) -> Iterator[Reading]:
    """Yield a place in the cache for the documents that are read with these settings.

    It is removed at the end, but stays after a kill, or an error after a finished part, for the next reading
    with equal settings; those of other settings are removed after a day. While another process reads with
    equal settings, this one gets a place of its own.
    """
    collections = cache / COLLECTIONS_FOLDER
    remove_leftovers(collections)
    folder = collections / f"reading-{sha256_json([READER_VERSION, settings])[:32]}"
    place = _place(folder)
    with ExitStack() as stack:
        try:
            collections.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(beside(folder, "writing"), patience_seconds=0))
        except LockHeld:
            log.info("another process reads the same data; in the meantime this one reads them itself")
            own = folder.with_name(f"{folder.name}-{os.getpid()}-{threading.get_ident()}")
            place = stack.enter_context(unfinished(own))
        _remove_old(collections, place)
        here = Reading(place / "documents", place / PART_FILE)
        is_finished = False
        try:
            yield here
            is_finished = True
        finally:
            if is_finished or not here.part_file.exists():
                remove(place)


def _place(folder: Path) -> Path:
    """The place that the claim on `folder` stands for; it is outside, since the claim ends with a process."""
    return folder.with_name(f".{folder.name}.parts")


def _remove_old(collections: Path, own: Path) -> None:
    """Remove what interrupted readings left more than KEPT_SECONDS ago."""
    for place in collections.glob(".reading-*.parts"):
        with suppress(LockHeld, FileNotFoundError):
            if place != own and place.stat().st_mtime < time.time() - KEPT_SECONDS:
                with locked(place.with_suffix(".writing"), patience_seconds=0):
                    log.info("removing %s, left by a reading that was interrupted", place)
                    remove(place)


class CannotContinue(Exception):
    """There is no part after which a reading can continue."""


class Parts:
    """The JSON file about the last finished part of a reading of `documents`.

    left_out: the lines of documents that were left out so far, by id, which belong to a part.
    """

    def __init__(self, path: Path, documents: LineDocuments, left_out: dict[str, Line]):
        self._path, self._files, self._left_out = path, documents.files, left_out
        self._states = file_states(documents.files)  # None: a file may change without another time

    def last(self) -> dict[str, Any]:
        """The last finished part. Raises CannotContinue, with the reason, if there is none that holds."""
        try:
            part = read_json_object(self._path)
        except RuntimeError as error:
            raise CannotContinue(error) from error
        if part is None:
            raise CannotContinue("no part was finished")
        if part["files"] != self._states:
            changed = [path for path, *state in part["files"] if [path, *state] not in (self._states or [])]
            raise CannotContinue(f"the files have changed: {', '.join(changed) or 'there are more of them'}")
        for id, (path, number) in part["left_out"].items():
            self._left_out[id] = Line(Path(path), number, "")
        return part

    def end(self, line: Line, texts: dict[str, Any]) -> None:
        """Record a part that ends with the document in `line`; `texts` describes all texts so far."""
        if self._states is not None:
            position = [self._files.index(line.path), line.number, line.end]
            left_out = {id: [str(line.path), line.number] for id, line in self._left_out.items()}
            about = {"position": position, "left_out": left_out, "files": self._states}
            write_json(self._path, {"texts": texts, **about})


class OnDisk:
    """A store that writes documents into a new folder, or continues an interrupted reading.

    In memory are a block of texts, and the hashes of ids and line numbers of `documents_per_part` documents;
    the others are on disk.

    It stores no answers, since documents have none.
    """

    def __init__(self, folder: Path, documents_per_part: int = DOCUMENTS_PER_PART):
        self._folder, self._documents_per_part = folder, documents_per_part
        self._numbers = SpilledNumbers(folder, np.int64, documents_per_part)
        self.origins = LineOrigins(self._numbers)
        self.rows = 0
        self._parts: Parts | None = None
        self._writer: TextsWriter | None = None
        self._block: list[tuple[str, ...]] = []

    @property
    def fields(self) -> Sequence[str]:
        return self._writer.fields if self._writer else ()

    def resume(
        self, documents: Iterable[Entry], part_file: Path, left_out: dict[str, Line]
    ) -> Iterable[Entry]:
        """Continue after the part that `part_file` describes, and describe each part there from now on.

        Returns the documents that follow. If the reading cannot continue, these are all documents; the reason
        is logged, and what was stored is removed.
        """
        try:
            if not isinstance(documents, LineDocuments):
                raise CannotContinue("its documents are not one line each")
            self._parts = Parts(part_file, documents, left_out)
            part = self._parts.last()
            self._writer = self._continue(part["texts"])
        except CannotContinue as reason:
            if self._folder.exists():
                log.info("the interrupted reading begins anew: %s", reason)
            part_file.unlink(missing_ok=True)
            remove(self._folder)
            return documents
        self.rows = part["texts"]["rows"]
        stored = (self.rows, lambda: (one.line for one in documents if not is_empty(one)))
        self.origins = LineOrigins(self._numbers, stored)
        file, line, byte = part["position"]
        log.info(
            "reading continues after %s documents: %s, line %d", f"{self.rows:,}", documents.files[file], line
        )
        return documents.after(file, line, byte)

    def _continue(self, texts: dict[str, Any]) -> TextsWriter:
        """A writer that continues after `texts`; what was written after them is cut off.

        Raises CannotContinue if they are not in the folder.
        """
        for path in self._folder.glob("*"):
            if path.name not in texts["bytes"]:
                path.unlink()
        for name, size in texts["bytes"].items():
            path = self._folder / name
            if not path.exists() or path.stat().st_size < size:
                raise CannotContinue(f"{path} has less than {size:,} bytes")
            if path.stat().st_nlink > 1:  # a stored collection has the same file
                copy_whole(path, path)
            os.truncate(path, size)
        writer = TextsWriter(self._folder, texts["fields"], self._documents_per_part, texts["rows"])
        if writer.digest != texts["digest"]:
            writer.close()
            raise CannotContinue(f"{self._folder} has other texts than were written")
        return writer

    def add(self, entry: Entry) -> None:
        if self._writer is None:
            self._writer = TextsWriter(self._folder, list(entry.fields), self._documents_per_part)
        self._block.append((entry.id, *(entry.fields[name] for name in self._writer.fields)))
        self.rows += 1
        ends_part = self.rows % self._documents_per_part == 0
        if ends_part or len(self._block) == STRINGS_PER_BLOCK:
            self._write()
        if ends_part and self._parts:
            self._parts.end(entry.line, self._writer.sync())

    def texts(self) -> Texts:
        if self._writer is None:
            return Texts([], {})
        self._write()
        return open_texts(self._folder, self._writer.finish())

    def first_repeat(self, texts: Texts) -> tuple[int, int] | None:
        if not len(texts):
            return None
        assert isinstance(texts.ids, Strings) and isinstance(texts.rows, RowsOfIds)
        return first_repeat(texts.ids, texts.rows)

    def close(self) -> None:
        self._numbers.close()
        if self._writer:
            self._writer.close()

    def _write(self) -> None:
        if self._writer and self._block:
            ids, *columns = zip(*self._block, strict=True)
            self._writer.append(ids, columns)
            self._block.clear()
