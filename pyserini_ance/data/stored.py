"""A collection as a folder of the cache: published once, then memory-mapped by every process that needs it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Collection, Qrels, Split
from pyserini_ance.data.text_files import open_texts, write_texts
from pyserini_ance.storage.beside import beside, sweep
from pyserini_ance.storage.files import read_json, write_json
from pyserini_ance.storage.publish import is_complete, publish_once, read_manifest

ABOUT = "collection.json"
LAYOUT = 1
ROOM = "collections"
QRELS_ARRAYS = ("offsets", "rows", "grades", "relevant_offsets", "relevant_rows")


def store_collection(collection: Collection, cache: Path) -> Path:
    """The folder that holds `collection`: written, unless it is there; another process that writes it is waited for."""
    folder = collection_folder(cache, collection.digest)
    about = {"layout": LAYOUT, "collection": collection.digest}
    publish_once(folder, about, lambda claimed: _write(claimed, collection))
    return folder


def open_collection(cache: Path, digest: str) -> Collection | None:
    """The stored collection of that digest, memory-mapped; None where none is complete.

    Raises RuntimeError when a part is missing or has another size than was written, or when it is another collection.
    """
    folder = collection_folder(cache, digest)
    if not is_complete(folder):
        return None
    manifest = read_manifest(folder, verify=False)  # hashing would read everything, in each process
    if manifest["layout"] != LAYOUT:
        raise RuntimeError(f"{folder} has layout {manifest['layout']}, this version reads {LAYOUT}; remove it and make it again")
    about = read_json(folder / ABOUT)
    documents = open_texts(folder / "documents", about["documents"])
    splits = {name: _open_split(folder / f"split{n}", name, parts) for n, (name, parts) in enumerate(about["splits"].items())}
    opened = Collection(documents, splits, about["skipped"])
    if opened.digest != digest:
        raise RuntimeError(f"{folder / ABOUT} tells of collection {opened.digest[:12]}, expected {digest[:12]}; remove {folder}")
    return opened


@contextmanager
def reading_room(cache: Path) -> Iterator[Path]:
    """A folder of the cache, not made yet, for the documents of one reading; it is gone at the end.

    What readings left there that were killed is removed first.
    """
    folder = beside(cache / ROOM / "reading", "tmp")
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder.parent)
    shutil.rmtree(folder, ignore_errors=True)  # of a dead process that had our number
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def collection_folder(cache: Path, digest: str) -> Path:
    return cache / ROOM / digest[:32]


def _write(folder: Path, collection: Collection) -> None:
    """Splits go by number: their names need not fit a file system."""
    documents = write_texts(folder / "documents", collection.documents)
    splits = {name: _write_split(folder / f"split{n}", split) for n, (name, split) in enumerate(collection.splits.items())}
    write_json(folder / ABOUT, {"documents": documents, "splits": splits, "skipped": collection.skipped})


def _write_split(folder: Path, split: Split) -> dict:
    queries, qrels = write_texts(folder / "queries", split.queries), split.qrels
    for name in QRELS_ARRAYS:
        np.save(folder / f"{name}.npy", getattr(qrels, name), allow_pickle=False)
    return {"queries": queries, "qrels": {"threshold": qrels.threshold, "digest": qrels.digest}}


def _open_split(folder: Path, name: str, about: dict) -> Split:
    offsets, rows, grades, *relevant = (np.load(folder / f"{a}.npy", mmap_mode="r", allow_pickle=False) for a in QRELS_ARRAYS)
    qrels = Qrels(offsets, rows, grades, about["qrels"]["threshold"])
    # Cached properties: they are on disk.
    vars(qrels).update(digest=about["qrels"]["digest"], relevant_offsets=relevant[0], relevant_rows=relevant[1])
    return Split(name, open_texts(folder / "queries", about["queries"]), qrels)
