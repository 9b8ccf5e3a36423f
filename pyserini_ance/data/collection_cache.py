"""Collection cache: stored collections, memory-mapped by every process, and the input files behind them.

The folder of a collection holds `documents.arrow`, `queries-N.arrow` and `judgments-N.npz` for a split, which
texts occur several times in `.same.npy` next to both, and the rest, such as the names of splits, in
`collection.json`.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np

from pyserini_ance.data.collection import Collection, Qrels, Split
from pyserini_ance.data.formats.format import Format
from pyserini_ance.data.texts import open_texts, write_texts
from pyserini_ance.storage.files import (
    file_state,
    read_json,
    read_json_object,
    remove_leftovers,
    sha256_json,
    unfinished,
    write_json,
)
from pyserini_ance.storage.publish import check_cache, is_complete, publish_once, read_manifest

COLLECTION_FILE = "collection.json"
COLLECTIONS_FOLDER = "collections-5"  # another name for another layout


def cached_collection(
    cache: Path,
    data: Format,
    settings: dict[str, Any],
    read: Callable[[Path], Collection],
    check: Callable[[Collection], None] = lambda collection: None,
) -> Collection:
    """The collection that `read` gives of `data`, memory-mapped; unchanged files are not read again.

    settings: what decides, besides `data`, what is read. read: takes the path of a new file in the cache for
    the documents, so that no process holds all of them. check: called with a collection that is not read
    again.
    """
    read_here: list[Collection] = []

    def make() -> dict[str, Any]:
        with documents_file(cache) as path:
            read_here.append(collection := read(path))
            store_collection(collection, cache)
        about = {"splits": list(collection.splits), "skipped": collection.skipped}
        return {"collection": collection.digest, **about}

    what = {"data": data.model_dump(mode="json", exclude={"official", "instruction"}), **settings}
    known = data.input_files() if data.shows_changes else None
    about = recorded(cache, what, known, make, lambda about: open_collection(cache, about["collection"]))
    stored = open_collection(cache, about["collection"])
    assert stored is not None
    # Another recipe may have stored it, with the splits in another order and other skipped lines.
    splits = {name: stored.split(name) for name in about["splits"]}
    collection = replace(stored, splits=splits, skipped=about["skipped"])
    if not read_here:
        collection.log_skipped()
        check(collection)
    return collection


@contextmanager
def documents_file(cache: Path) -> Iterator[Path]:
    """Yield the path of a new file in the cache for documents that are being read; remove it at the end."""
    check_cache(cache)
    collections = cache / COLLECTIONS_FOLDER
    collections.mkdir(parents=True, exist_ok=True)
    remove_leftovers(collections)
    with unfinished(collections / f"documents-{os.getpid()}-{get_ident()}.arrow") as path:
        yield path


def store_collection(collection: Collection, cache: Path) -> Path:
    """Write the collection into the cache unless it is stored already, and return its folder.

    If another process is writing it, wait for that process.
    """
    folder = cache / COLLECTIONS_FOLDER / collection.digest[:32]
    publish_once(folder, {"collection": collection.digest}, lambda claimed: _write(claimed, collection))
    return folder


def open_collection(cache: Path, digest: str) -> Collection | None:
    """Open the stored collection with this digest, memory-mapped; None if it is not stored completely.

    Raises RuntimeError if a file is missing or has a different size than was written.
    """
    folder = cache / COLLECTIONS_FOLDER / digest[:32]
    if not is_complete(folder):
        return None
    read_manifest(folder, verify=False)  # hashing would read everything in each process
    about = read_json(folder / COLLECTION_FILE)
    splits = {}
    for number, split in enumerate(about["splits"]):
        with np.load(folder / f"judgments-{number}.npz", allow_pickle=False) as arrays:
            qrels = Qrels(arrays["offsets"], arrays["rows"], arrays["grades"], split["threshold"])
        queries = open_texts(folder / f"queries-{number}.arrow", split["queries"])
        splits[split["name"]] = Split(split["name"], queries, qrels)
    documents = open_texts(folder / "documents.arrow", about["documents"])
    left_out, ignore_identical_ids = frozenset(about["left_out"]), about["ignore_identical_ids"]
    return Collection(documents, splits, about["skipped"], left_out, ignore_identical_ids)


def _write(folder: Path, collection: Collection) -> None:
    write_texts(folder / "documents.arrow", collection.documents)
    splits = []
    for number, (name, split) in enumerate(collection.splits.items()):
        write_texts(folder / f"queries-{number}.arrow", split.queries)
        qrels = split.qrels
        file = folder / f"judgments-{number}.npz"
        np.savez(file, offsets=qrels.offsets, rows=qrels.rows, grades=qrels.grades)
        splits.append({"name": name, "queries": split.queries.digest, "threshold": qrels.threshold})
    about = {
        "documents": collection.documents.digest,
        "splits": splits,
        "skipped": collection.skipped,
        "left_out": sorted(collection.left_out),
        "ignore_identical_ids": collection.ignore_identical_ids,
    }
    write_json(folder / COLLECTION_FILE, about)


READER_VERSION = 10  # to be incremented when readers produce something else from the same files
SETTLED_SECONDS = 2  # a file younger than this may change again without changing its modification time


def recorded(
    cache: Path,
    settings: dict[str, Any],
    files: Sequence[Path] | None,
    make: Callable[[], dict[str, Any] | None],
    is_made: Callable[[dict[str, Any]], object] = lambda about: True,
) -> dict[str, Any]:
    """The JSON object that `make` makes from `files` with `settings`; made again unless `is_made` of it.

    It is recorded in the cache, and valid while the paths and states of the files are unchanged, as `git`
    checks it. If `files` is None, nothing is recorded, because changes of the input cannot be detected; nor
    while a file is so young that it may change again without a change of its times.
    """

    def current_path() -> Path | None:
        if files is None:
            return None
        states: list[list[Any]] = [[str(path.resolve()), *file_state(path)] for path in files]
        newest = max((time for _, _, *times, _ in states for time in times), default=0)
        if newest >= time.time_ns() - SETTLED_SECONDS * 10**9:
            return None
        return cache / "inputs" / f"{sha256_json([READER_VERSION, settings, states])[:32]}.json"

    path = current_path()
    if path and (about := read_json_object(path)) is not None and is_made(about):
        return about
    about = make() or {}
    if path and current_path() == path:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, about | {"files": [str(file) for file in files or ()]})
    return about
