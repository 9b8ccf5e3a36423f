"""A stored collection equals the collection that was stored: same texts, rows and digests, nothing in
memory.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from pyserini_ance.data import collection_cache as stored
from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.collection_cache import open_collection, store_collection
from pyserini_ance.data.string_arrays import Strings
from pyserini_ance.storage.publish import MANIFEST, is_complete

DOCUMENTS = Texts(
    ["007", "7", "D-é", "日本"],
    {"title": ["", "Ti\ttle", "", "🙂"], "te/xt": ["a\r\nb\n\n", "", " \u2028 ", "naïve e\u0301"]},
)
TRAIN = Split(
    "train",
    Texts(["01", "1"], {"text": ["which?", ""]}),
    Qrels.of([1, 0, 1], [3, 2, 0], [0, 2, 1], 2, threshold=1),
)
GRADED = Split("../dev 1", Texts(["q"], {"text": ["é"]}), Qrels.of([0, 0], [1, 2], [1, 2], 1, threshold=2))
EMPTY = Split("empty", Texts([], {"text": []}), Qrels.of([], [], [], 0))
WRITER = """
import os, sys
from pathlib import Path
from pyserini_ance.data import collection_cache as stored
from pyserini_ance.data import collection_cache as text_files
from pyserini_ance.data.collection import Collection, Texts

def die(path, hashes):
    print("writing", flush=True)
    sys.stdin.read()

text_files.write_rows = die
stored.store_collection(Collection(Texts(["a"], {"text": ["b"]}), {}), Path(sys.argv[1]))
"""


@pytest.fixture
def collection() -> Collection:
    return Collection(
        DOCUMENTS,
        {split.name: split for split in (TRAIN, GRADED, EMPTY)},
        {"dev judgments of unknown ids": 3},
    )


@pytest.fixture
def opened(collection, tmp_path) -> Collection:
    store_collection(collection, tmp_path)
    return open_collection(tmp_path, collection.digest)


def as_lists(texts: Texts) -> tuple:
    return list(texts.ids), {name: list(values) for name, values in texts.columns.items()}


def test_everything_is_read_back(opened, collection):
    assert as_lists(opened.documents) == as_lists(collection.documents)
    assert list(opened.splits) == list(collection.splits) and opened.skipped == collection.skipped
    for name, split in collection.splits.items():
        again = opened.split(name)
        assert (again.name, as_lists(again.queries)) == (name, as_lists(split.queries))
        for array in ("offsets", "rows", "grades", "relevant_offsets", "relevant_rows"):
            result, expected = getattr(again.qrels, array), getattr(split.qrels, array)
            assert result.dtype == expected.dtype and result.tolist() == expected.tolist()
        assert again.qrels.threshold == split.qrels.threshold


def digested(collection: Collection) -> list[Texts | Qrels]:
    splits = collection.splits.values()
    return [collection.documents, *(split.queries for split in splits), *(split.qrels for split in splits)]


def test_stored_digests_agree_with_the_content(opened, collection):
    for part, original in zip(digested(opened), digested(collection), strict=True):
        assert part.digest == type(part).digest.func(part) == original.digest


def test_digests_are_known_without_reading(opened, collection, tmp_path, monkeypatch):
    monkeypatch.setattr(Strings, "__iter__", lambda _: pytest.fail("all strings were read"))
    fresh = open_collection(tmp_path, collection.digest)
    assert (fresh.digest, fresh.documents.digest) == (collection.digest, DOCUMENTS.digest)


def test_rows_are_looked_up_as_before(opened):
    assert [opened.documents.rows[id] for id in DOCUMENTS.ids] == [0, 1, 2, 3]
    assert "07" not in opened.documents.rows and opened.split("train").queries.rows["1"] == 1
    rows = np.array([3, 0], np.int32)
    assert opened.documents.take(rows) == DOCUMENTS.take(rows)
    assert opened.documents.subset(rows).digest == DOCUMENTS.subset(rows).digest
    assert opened.split("train").known_positives("document").of(2).tolist() == [0]
    subset = opened.split("train").qrels.subset(np.array([1]))
    assert subset.digest == TRAIN.qrels.subset(np.array([1])).digest


def arrays_of(thing) -> Iterator[np.ndarray]:
    """The values in an object that grow with the collection, such as a list of strings."""
    assert not isinstance(thing, list)
    if isinstance(thing, np.ndarray):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from arrays_of(value)
    elif hasattr(thing, "__dict__"):
        yield from arrays_of(vars(thing))


def test_everything_is_memory_mapped_even_after_use(opened):
    opened.documents.rows["007"], opened.documents[0], opened.digest
    opened.split("train").qrels.relevant(0)
    arrays = list(arrays_of(opened))
    assert len(arrays) == 10 + 3 * 8 + 3 * 5  # documents, queries, and judgments of three splits
    assert all(isinstance(array, np.memmap) or array.size == 0 for array in arrays)
    assert not any(array.flags.writeable for array in arrays if array.size)


@pytest.mark.parametrize(("first", "stop"), [(0, 4), (1, 3), (2, 2), (3, 4)])
def test_a_part_of_the_texts(opened, first, stop):
    for texts in (opened.documents, DOCUMENTS):
        part = texts.between(first, stop)
        assert list(part.ids) == DOCUMENTS.ids[first:stop] and part.columns.keys() == DOCUMENTS.columns.keys()
        assert [record for block in part.blocks(2) for record in block] == DOCUMENTS.take(range(first, stop))


@pytest.mark.parametrize(("size", "first"), [(1, 0), (3, 0), (3, 1), (9, 2), (2, 4)])
def test_blocks_of_texts(opened, size, first):
    blocks = list(opened.documents.blocks(size, first))
    assert [text for block in blocks for text in block] == DOCUMENTS.take(range(first, 4)) and all(
        len(block) <= size for block in blocks
    )


def test_stored_documents_are_linked(collection, opened, tmp_path):
    again = store_collection(opened, tmp_path / "copy")
    ids = [
        next(folder.rglob("documents/ids.utf8")).stat().st_ino for folder in (again, tmp_path / "collections")
    ]
    assert ids[0] == ids[1]


def test_a_collection_is_stored_once(collection, opened, tmp_path):
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert store_collection(collection, tmp_path) == tmp_path / "collections" / collection.digest[:32]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == written
    assert open_collection(tmp_path, "0" * 64) is None
    again = store_collection(
        open_collection(tmp_path, collection.digest), tmp_path / "copy"
    )  # from the stored form itself
    assert (again / MANIFEST).exists() and open_collection(
        tmp_path / "copy", collection.digest
    ).digest == collection.digest


def test_equal_collections_are_equal_bytes(collection, tmp_path):
    one, two = (store_collection(collection, tmp_path / name) for name in "ab")
    manifests = [json.loads((folder / MANIFEST).read_text()) for folder in (one, two)]
    assert manifests[0]["parts"] == manifests[1]["parts"] and len(manifests[0]["parts"]) > 40


def test_a_missing_or_truncated_file_is_an_error(collection, opened, tmp_path):
    folder = store_collection(collection, tmp_path)
    names = list(json.loads((folder / MANIFEST).read_text())["parts"])
    for name in names:
        part = folder / name
        content = part.read_bytes()
        part.unlink()
        with pytest.raises(RuntimeError, match=f"{name} is missing"):
            open_collection(tmp_path, collection.digest)
        if content:
            part.write_bytes(content[:-1])
            with pytest.raises(RuntimeError, match=f"{name} is not what"):
                open_collection(tmp_path, collection.digest)
        part.write_bytes(content)
    assert open_collection(tmp_path, collection.digest).digest == collection.digest


def test_another_collection_or_layout_in_the_folder_is_an_error(collection, tmp_path, monkeypatch):
    folder = store_collection(collection, tmp_path)
    other = collection.digest[:32] + "0" * 32
    with pytest.raises(
        RuntimeError,
        match=rf"collection\.json describes collection {collection.digest[:12]}, expected {other[:12]}",
    ):
        open_collection(tmp_path, other)
    monkeypatch.setattr(stored, "LAYOUT", 99)
    with pytest.raises(
        RuntimeError, match=f"{folder} has layout 1, but this version reads layout 99; remove"
    ):
        open_collection(tmp_path, collection.digest)


def test_leftovers_of_a_killed_writer_are_written_again(tmp_path):
    small = Collection(Texts(["a"], {"text": ["b"]}), {})
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout.readline() == "writing\n"
        (folder,) = (tmp_path / "collections").iterdir()
        assert (folder / "documents" / "ids.utf8").read_text() == "a" and not is_complete(folder)
        assert open_collection(tmp_path, small.digest) is None
        os.kill(writer.pid, signal.SIGKILL)
    assert open_collection(tmp_path, small.digest) is None
    store_collection(small, tmp_path)
    assert as_lists(open_collection(tmp_path, small.digest).documents) == (["a"], {"text": ["b"]})


def test_a_full_disk_leaves_nothing(collection, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space left"):
        store_collection(collection, tmp_path)
    assert (
        list((tmp_path / "collections").iterdir()) == []
        and open_collection(tmp_path, collection.digest) is None
    )
