"""Collection cache: stored collections, memory-mapped by every process, and the input files behind them."""

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import batched, chain
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts, add_to_digest
from pyserini_ance.data.spilled_numbers import SpilledNumbers
from pyserini_ance.data.string_arrays import (
    STRINGS_PER_BLOCK,
    RowsOfIds,
    Strings,
    StringsFile,
    hashes_of,
    write_rows,
)
from pyserini_ance.storage.files import read_json, read_json_object, sha256_json, write_json
from pyserini_ance.storage.publish import is_complete, publish_once, read_manifest

COLLECTION_FILE = "collection.json"
LAYOUT = 1
DOCUMENTS_PER_PART = 1_000_000
COLLECTIONS_FOLDER = "collections"
QRELS_ARRAYS = ("offsets", "rows", "grades", "relevant_offsets", "relevant_rows")


@dataclass(frozen=True, eq=False, repr=False)
class StoredTexts(Texts):
    """Texts that are memory-mapped from `folder`; with `pickle`, another process maps them, too."""

    folder: Path

    def __reduce__(self) -> tuple[Any, ...]:
        return open_texts, (self.folder.absolute(), {"fields": list(self.columns), "digest": self.digest})


class TextsWriter:
    """Write texts into a new folder, block by block.

    In memory are a block of texts and the 8-byte hashes of `ids_per_part` ids; the other hashes are on disk.
    rows: the texts that an earlier writer left in the folder, after which this one continues.

    Files of columns are numbered because field names may not be valid file names.
    """

    def __init__(
        self, folder: Path, fields: Sequence[str], ids_per_part: int = DOCUMENTS_PER_PART, rows: int = 0
    ):
        folder.mkdir(parents=True, exist_ok=rows > 0)
        self.folder, self.fields = folder, list(fields)
        names = ["ids", *(f"field{n}" for n in range(len(self.fields)))]
        self._files = [StringsFile(folder / name, rows) for name in names]
        self._hashes = SpilledNumbers(folder, np.uint64, ids_per_part)
        self._open = ExitStack()
        self._open.callback(self._hashes.close)
        for file in self._files:
            self._open.callback(file.close)
        self._sha = hashlib.sha256()
        add_to_digest(self._sha, [string.encode() for string in (str(len(self.fields)), *self.fields)])
        if rows:
            self._hash_again([Strings.open(folder / name) for name in names])

    @property
    def digest(self) -> str:
        """The digest of the texts so far."""
        return self._sha.hexdigest()

    def append(self, ids: Sequence[str], columns: Sequence[Sequence[str]]) -> None:
        """Append a block: ids, and for each field as many values."""
        encoded = [[value.encode() for value in values] for values in (ids, *columns)]
        self._hash(encoded)
        for file, values in zip(self._files, encoded, strict=True):
            file.append(values)

    def sync(self) -> dict[str, Any]:
        """Return when the texts so far are on disk: their number, fields, digest and files with sizes."""
        for file in self._files:
            file.sync()
        sizes = {path.name: path.stat().st_size for path in sorted(self.folder.iterdir())}
        return {"rows": len(self._hashes), "fields": self.fields, "digest": self.digest, "bytes": sizes}

    def finish(self) -> dict[str, Any]:
        """Complete the folder. Returns the fields and the digest, which `open_texts` needs."""
        write_rows(self.folder / "ids", self._hashes)
        self.close()
        return {"fields": self.fields, "digest": self.digest}

    def close(self) -> None:
        """Close the files. The folder is not complete unless `finish` was called."""
        self._open.close()

    def _hash(self, encoded: Sequence[Sequence[bytes]]) -> None:
        self._hashes.extend(hashes_of(encoded[0], len(encoded[0])))
        add_to_digest(self._sha, chain.from_iterable(zip(*encoded, strict=True)))

    def _hash_again(self, columns: Sequence[Strings]) -> None:
        """Hash the texts of an earlier writer: ids, then the fields."""
        for start in range(0, len(columns[0]), STRINGS_PER_BLOCK):
            self._hash([strings.encoded_block(start, start + STRINGS_PER_BLOCK) for strings in columns])
            for strings in columns:
                strings.release()


def write_texts(folder: Path, texts: Texts) -> dict[str, Any]:
    """Write `texts` into a new folder. Stored texts are hard-linked, or copied if links fail."""
    if isinstance(texts, StoredTexts):
        shutil.copytree(texts.folder, folder, copy_function=_link)
        return {"fields": list(texts.columns), "digest": texts.digest}
    with closing(TextsWriter(folder, list(texts.columns))) as writer:
        for block in batched(zip(texts.ids, *texts.columns.values(), strict=True), STRINGS_PER_BLOCK):
            ids, *columns = zip(*block, strict=True)
            writer.append(ids, columns)
        return writer.finish()


def open_texts(folder: Path, about: dict[str, Any]) -> StoredTexts:
    """Open a folder that `TextsWriter` wrote; `about` is what its `finish` returned."""
    ids = Strings.open(folder / "ids")
    columns = {name: Strings.open(folder / f"field{n}") for n, name in enumerate(about["fields"])}
    texts = StoredTexts(ids, columns, folder)
    # Set the cached properties from the stored values: computing them would read everything.
    vars(texts).update(digest=about["digest"], rows=RowsOfIds.open(folder / "ids", ids))
    return texts


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def store_collection(collection: Collection, cache: Path) -> Path:
    """Write the collection into the cache unless it is stored already, and return its folder.

    If another process is writing it, wait for that process.
    """
    folder = collection_folder(cache, collection.digest)
    about = {"layout": LAYOUT, "collection": collection.digest}
    publish_once(folder, about, lambda claimed: _write(claimed, collection))
    return folder


def open_collection(cache: Path, digest: str) -> Collection | None:
    """Open the stored collection with this digest, memory-mapped; None if it is not stored completely.

    Raises RuntimeError if a file is missing or has a different size than was written, and if the folder
    holds a different collection.
    """
    folder = collection_folder(cache, digest)
    if not is_complete(folder):
        return None
    manifest = read_manifest(folder, verify=False)  # hashing would read everything in each process
    if manifest["layout"] != LAYOUT:
        raise RuntimeError(
            f"{folder} has layout {manifest['layout']}, but this version reads layout {LAYOUT}; "
            "remove the folder to make it again"
        )
    about = read_json(folder / COLLECTION_FILE)
    documents = open_texts(folder / "documents", about["documents"])
    splits = {
        name: _open_split(folder / f"split{n}", name, about_split)
        for n, (name, about_split) in enumerate(about["splits"].items())
    }
    opened = Collection(documents, splits, about["skipped"], frozenset(about.get("left_out", ())))
    if opened.digest != digest:
        raise RuntimeError(
            f"{folder / COLLECTION_FILE} describes collection {opened.digest[:12]}, expected {digest[:12]}; "
            f"remove {folder}"
        )
    return opened


def collection_folder(cache: Path, digest: str) -> Path:
    """The folder of the cache that holds the collection with this digest."""
    return cache / COLLECTIONS_FOLDER / digest[:32]


def _write(folder: Path, collection: Collection) -> None:
    """Write the files of a collection.

    Folders of splits are numbered because split names may not be valid file names.
    """
    documents = write_texts(folder / "documents", collection.documents)
    splits = {
        name: _write_split(folder / f"split{n}", split)
        for n, (name, split) in enumerate(collection.splits.items())
    }
    about = {"documents": documents, "splits": splits, "skipped": collection.skipped}
    write_json(folder / COLLECTION_FILE, about | {"left_out": sorted(collection.left_out)})


def _write_split(folder: Path, split: Split) -> dict[str, Any]:
    queries, qrels = write_texts(folder / "queries", split.queries), split.qrels
    for name in QRELS_ARRAYS:
        np.save(folder / f"{name}.npy", getattr(qrels, name), allow_pickle=False)
    return {"queries": queries, "qrels": {"threshold": qrels.threshold, "digest": qrels.digest}}


def _open_split(folder: Path, name: str, about: dict[str, Any]) -> Split:
    offsets, rows, grades, *relevant = (
        np.load(folder / f"{array}.npy", mmap_mode="r", allow_pickle=False) for array in QRELS_ARRAYS
    )
    qrels = Qrels(offsets, rows, grades, about["qrels"]["threshold"])
    # Set the cached properties from the stored values.
    vars(qrels).update(
        digest=about["qrels"]["digest"], relevant_offsets=relevant[0], relevant_rows=relevant[1]
    )
    return Split(name, open_texts(folder / "queries", about["queries"]), qrels)


READER_VERSION = 3  # to be incremented when readers produce something else from the same files
SETTLED_SECONDS = 2  # a file younger than this may change again without changing its modification time


class InputRecord:
    """A JSON object about `files` that were read with `settings`.

    It is valid while the paths, sizes and times of the files are unchanged, as `make` and `git` check it. If
    `files` is None, nothing is recorded, because changes of the input cannot be detected.
    """

    def __init__(self, cache: Path, settings: dict[str, Any], files: Sequence[Path] | None):
        self._cache, self._settings, self._files = cache, settings, files
        self._key = self._current_key()

    def load(self) -> dict[str, Any] | None:
        """The recorded object; None if there is none or the files have changed."""
        return read_json_object(self._path(self._key)) if self._key else None

    def save(self, about: dict[str, Any]) -> None:
        """Record the object, unless the files have changed since this instance was made."""
        if self._files is not None and self._key and self._current_key() == self._key:
            path = self._path(self._key)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, about | {"files": [str(file) for file in self._files]})

    def _path(self, key: str) -> Path:
        return self._cache / "inputs" / f"{key[:32]}.json"

    def _current_key(self) -> str | None:
        """A hash of the settings and the state of the files; None if the files are unknown or too young."""
        if self._files is None:
            return None
        states = file_states(self._files)
        return None if states is None else sha256_json([READER_VERSION, self._settings, states])


class CollectionRecord:
    """A record of the stored collection that `files` gave when they were read with `settings`."""

    def __init__(self, cache: Path, settings: dict[str, Any], files: Sequence[Path] | None):
        self._cache, self._record = cache, InputRecord(cache, settings, files)

    def load(self) -> Collection | None:
        """The memory-mapped collection, with its splits in their order and its skipped counts."""
        about = self._record.load()
        mapped = open_collection(self._cache, about["collection"]) if about else None
        if about is None or mapped is None:
            return None
        splits = {name: mapped.split(name) for name in about["splits"]}
        return replace(mapped, splits=splits, skipped=about["skipped"])

    def save(self, collection: Collection) -> None:
        """Record the stored collection that the files gave."""
        self._record.save(
            {
                "collection": collection.digest,
                "splits": list(collection.splits),
                "skipped": collection.skipped,
            }
        )


def file_states(files: Sequence[Path]) -> list[list[str | int]] | None:
    """Path, size and modification time (ns) of each file; None if one is too young."""
    statuses = [path.stat() for path in files]
    newest = max((status.st_mtime_ns for status in statuses), default=0)
    if newest >= time.time_ns() - SETTLED_SECONDS * 10**9:
        return None
    return [
        [str(path.resolve()), status.st_size, status.st_mtime_ns]
        for path, status in zip(files, statuses, strict=True)
    ]
