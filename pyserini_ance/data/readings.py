"""What files gave when they were read: unchanged files need not be read again."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection import Collection
from pyserini_ance.data.stored import open_collection
from pyserini_ance.storage.files import read_json_object, sha256_json, write_json

READERS = 2  # to be raised when readers make something else of the same files
SETTLED_SECONDS = 2  # a younger file may be written again within the tick of its time


class Note:
    """What the cache remembers of `files` under `settings`: a JSON object, while these have the same paths, sizes and times, as `make` and
    `git` know them.

    With None in their place nothing is remembered: nobody can tell whether what was read then is what would be read now.
    """

    def __init__(self, cache: Path, settings: dict[str, Any], files: Sequence[Path] | None):
        self._cache, self._settings, self._files = cache, settings, files
        self._key = None if files is None else self._look()

    def recall(self) -> dict[str, Any] | None:
        return read_json_object(self._path) if self._key else None

    def remember(self, about: dict[str, Any]) -> None:
        """Unless the files have changed meanwhile."""
        if self._key and self._look() == self._key:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, about | {"files": [str(path) for path in self._files]})

    @property
    def _path(self) -> Path:
        return self._cache / "readings" / f"{self._key[:32]}.json"

    def _look(self) -> str | None:
        found = [(str(path.resolve()), *_state(path)) for path in self._files]
        newest = max((changed for *_, changed in found), default=0)
        return sha256_json([READERS, self._settings, found]) if newest < time.time_ns() - SETTLED_SECONDS * 10**9 else None


class Reading:
    """Which stored collection `files` gave under `settings`."""

    def __init__(self, cache: Path, settings: dict[str, Any], files: Sequence[Path] | None):
        self._cache, self._note = cache, Note(cache, settings, files)

    def recall(self) -> Collection | None:
        """The collection, memory-mapped from the cache, in the order of splits and with the skipped counts of the reading."""
        about = self._note.recall()
        mapped = about and open_collection(self._cache, about["collection"])
        return mapped and Collection(mapped.documents, {name: mapped.split(name) for name in about["splits"]}, about["skipped"])

    def remember(self, collection: Collection) -> None:
        """That these files gave a stored collection."""
        self._note.remember({"collection": collection.digest, "splits": list(collection.splits), "skipped": collection.skipped})


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
