"""Token ids on their way to disk: what a killed process has finished is found again, checked, and gone on with."""

import hashlib
import json
import os
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from pyserini_ance.storage.files import BlockFile, append_json_line, naming, read_json_lines, write_whole

SYNC_SECONDS = 2  # what a killed process loses at most, beside the block at which it was
LENGTHS, LOG = "lengths.uint32", "log.jsonl"
READ_BYTES = 1 << 20


class TokenParts:
    """A folder with the ids (`kind`) and the lengths (uint32) of the first `texts` texts.

    A line of its log vouches for the texts since the line before, once the disk has them: how many texts and ids there are by then,
    and the hashes of these. What no line vouches for, or is not what its line says, is forgotten.
    """

    def __init__(self, folder: Path, kind: type[np.unsignedinteger]):
        folder.mkdir(parents=True, exist_ok=True)
        self._log, self._kinds = folder / LOG, (np.dtype(kind), np.dtype(np.uint32))
        self.ids = folder / f"ids.{self._kinds[0].name}"
        self._paths = self.ids, folder / LENGTHS
        self.texts = self.tokens = 0
        self._take_up()
        self._files = [BlockFile(path, 0) for path in self._paths]
        self._begin_stretch()

    def append(self, lists: Sequence[Sequence[int]]) -> None:
        """The ids of the next texts."""
        lengths = np.fromiter(map(len, lists), np.uint32, len(lists))
        ids = np.fromiter(chain.from_iterable(lists), self._kinds[0], int(lengths.sum()))
        for file, sha, array, at in zip(self._files, self._shas, (ids, lengths), (self.tokens, self.texts), strict=True):
            data = array.tobytes()
            file.write_at(at * array.itemsize, data)
            sha.update(data)
        self.texts, self.tokens = self.texts + len(lengths), self.tokens + len(ids)
        if time.monotonic() - self._begun > SYNC_SECONDS:
            self.vouch()

    def vouch(self) -> None:
        """Enter what was appended in the log."""
        for file in self._files:
            file.sync()
        record = {"texts": self.texts, "tokens": self.tokens, "sha256": [sha.hexdigest() for sha in self._shas]}
        append_json_line(self._log, record, durable=True)
        self._begin_stretch()

    def lengths(self) -> np.ndarray:
        """(texts,) uint32."""
        return np.fromfile(self._paths[1], np.uint32, self.texts)

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _begin_stretch(self) -> None:
        self._shas, self._begun = (hashlib.sha256(), hashlib.sha256()), time.monotonic()

    def _take_up(self) -> None:
        """Go to the end of what is there as the log says, and cut off the rest."""
        records, good = read_json_lines(self._log), 0
        for record in records:
            if self._hashes(record) != record["sha256"]:
                break
            self.texts, self.tokens, good = record["texts"], record["tokens"], good + 1
        write_whole(self._log, "".join(json.dumps(record) + "\n" for record in records[:good]))
        for path, kind, count in zip(self._paths, self._kinds, (self.tokens, self.texts), strict=True):
            with naming(path), open(path, "ab") as file:
                os.truncate(file.fileno(), count * kind.itemsize)

    def _hashes(self, record: dict) -> list[str]:
        """Of what lies between here and where a line of the log ends."""
        spans = ((self.tokens, record["tokens"]), (self.texts, record["texts"]))
        return [_hash(path, *(place * kind.itemsize for place in span)) for path, kind, span in zip(self._paths, self._kinds, spans, strict=True)]


def _hash(path: Path, start: int, stop: int) -> str:
    """sha256 of some bytes of a file; of those that are there, when it is shorter or missing."""
    sha = hashlib.sha256()
    if path.exists():
        with open(path, "rb") as file:
            file.seek(start)
            while data := file.read(min(READ_BYTES, stop - file.tell())):
                sha.update(data)
    return sha.hexdigest()
