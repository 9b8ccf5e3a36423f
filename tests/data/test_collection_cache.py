"""A stored collection equals the collection that was stored: same texts, rows and digests, nothing in
memory.
"""

import json
import pickle

import pyarrow as pa
import pytest

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.collection_cache import open_collection, store_collection
from pyserini_ance.storage.publish import MANIFEST

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
    assert Texts(opened.documents.ids, opened.documents.columns).digest == opened.documents.digest
    for name, split in collection.splits.items():
        again = opened.split(name)
        assert (again.queries.digest, again.qrels.digest) == (split.queries.digest, split.qrels.digest)
        assert (again.name, as_lists(again.queries)) == (name, as_lists(split.queries))
        for array in ("offsets", "rows", "grades"):
            result, expected = getattr(again.qrels, array), getattr(split.qrels, array)
            assert result.dtype == expected.dtype and result.tolist() == expected.tolist()
        assert again.qrels.threshold == split.qrels.threshold


def test_texts_are_memory_mapped_and_mapped_again_by_pickle(opened):
    bytes_before = pa.total_allocated_bytes()
    again = pickle.loads(pickle.dumps(opened.documents))
    assert as_lists(again) == as_lists(DOCUMENTS) and again.digest == DOCUMENTS.digest
    assert pa.total_allocated_bytes() == bytes_before


@pytest.mark.parametrize(("first", "stop"), [(0, 4), (1, 3), (2, 2), (3, 4)])
def test_a_part_of_the_texts(opened, first, stop):
    for texts in (opened.documents, DOCUMENTS):
        part = texts.between(first, stop)
        assert list(part.ids) == DOCUMENTS.ids[first:stop] and part.columns.keys() == DOCUMENTS.columns.keys()
        assert [record for block in part.blocks(2) for record in block] == DOCUMENTS.take(range(first, stop))


def test_a_collection_is_stored_once(collection, opened, tmp_path):
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert store_collection(collection, tmp_path) == tmp_path / "collections-5" / collection.digest[:32]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == written
    assert open_collection(tmp_path, "0" * 64) is None
    store_collection(open_collection(tmp_path, collection.digest), tmp_path / "copy")  # from the stored form
    assert open_collection(tmp_path / "copy", collection.digest).digest == collection.digest


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
