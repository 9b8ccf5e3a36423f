"""A stored collection equals what was stored, and is read again where a file or a setting has changed."""

import os
import pickle

import pyarrow as pa
import pytest
from helpers.small_set import ONE_STEP

from pyserini_ance.data import collection_cache
from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.collection_cache import open_collection, store_collection
from pyserini_ance.data.formats import builder
from pyserini_ance.pipeline import preparation as prepare
from pyserini_ance.pipeline.preparation import stored_collection
from pyserini_ance.storage.files import beside

COLUMNS = {"title": ["", "Ti\ttle", "", "🙂"], "te/xt": ["a\r\nb\n\n", "", " \u2028 ", "naïve e\u0301"]}
DOCUMENTS = Texts(["007", "7", "D-é", "日本"], COLUMNS)
JUDGED = Qrels.of([1, 0, 1], [3, 2, 0], [0, 2, 1], 2, threshold=1)
TRAIN = Split("train", Texts(["01", "1"], {"text": ["which?", ""]}), JUDGED)
GRADED = Split("../dev 1", Texts(["q"], {"text": ["é"]}), Qrels.of([0, 0], [1, 2], [1, 2], 1, threshold=2))
EMPTY = Split("empty", Texts([], {"text": []}), Qrels.of([], [], [], 0))
FILES = ("corpus.jsonl", "train.tsv", "train.qrels", "dev.tsv", "dev.qrels", "test.tsv", "test.qrels")


@pytest.fixture
def collection() -> Collection:
    splits = {split.name: split for split in (TRAIN, GRADED, EMPTY)}
    return Collection(DOCUMENTS, splits, {"dev judgments of unknown ids": 3})


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
    (folder / "documents.arrow").write_bytes((folder / "documents.arrow").read_bytes()[:-1])
    with pytest.raises(RuntimeError, match=r"documents\.arrow is not what"):
        open_collection(tmp_path, collection.digest)


@pytest.fixture
def read(monkeypatch):
    """The readings so far."""
    readings = []
    original = prepare.read_collection
    monkeypatch.setattr(prepare, "read_collection", lambda *given: readings.append(given) or original(*given))
    return readings


@pytest.fixture
def recipe(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(collection_cache, "SETTLED_SECONDS", 0)
    return small_recipe({"a": ONE_STEP}, cache=str(tmp_path / "cache"))


def test_unchanged_files_are_read_once(recipe, read):
    first, again = stored_collection(recipe), stored_collection(recipe)
    assert len(read) == 1 and first.digest == again.digest
    assert (list(again.splits), again.skipped) == (list(first.splits), first.skipped)
    assert [path.name for _, path in recipe.data.files()] == list(FILES)


def test_an_interrupted_reading_starts_anew(recipe, read, monkeypatch):
    """It leaves nothing in the cache."""
    seen = []

    def checked(entry, *how, check=builder._check) -> None:
        seen.append(entry.id)
        if len(seen) == 10:
            raise KeyboardInterrupt
        check(entry, *how)

    monkeypatch.setattr(builder, "_check", checked)
    with pytest.raises(KeyboardInterrupt):
        stored_collection(recipe)
    assert not list(recipe.cache.rglob("*.arrow*"))
    collection = stored_collection(recipe)
    assert seen[10 : 10 + len(collection.documents)] == list(collection.documents.ids) and len(read) == 2


@pytest.mark.parametrize("unpacked", [False, True], ids=["in place", "as a new file"])
def test_other_content_of_the_same_size_and_time_is_read(recipe, read, unpacked):
    """As `tar`, `rsync -t` and `cp -p` leave it."""
    before = stored_collection(recipe)
    corpus = recipe.data.corpus
    text, times = corpus.read_text(), corpus.stat()
    changed = corpus.with_name("new") if unpacked else corpus
    try:
        changed.write_text(text.replace("the apple is red", "the apple is RED"))
        os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))
        changed.replace(corpus)
        assert (corpus.stat().st_size, corpus.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
        assert stored_collection(recipe).digest != before.digest and len(read) == 2
    finally:
        corpus.write_text(text)


def test_recently_written_files_are_read_again(recipe, read, monkeypatch):
    monkeypatch.setattr(collection_cache, "SETTLED_SECONDS", 3600)
    stored_collection(recipe), stored_collection(recipe)
    assert len(read) == 2


def test_the_recipe_is_checked_with_a_cached_collection_too(recipe, read):
    stored_collection(recipe)
    evaluation = recipe.final_evaluation.model_copy(update={"split": ("training",)})
    with pytest.raises(ValueError, match="names 'training', but `data` has no such split"):
        stored_collection(recipe.model_copy(update={"final_evaluation": evaluation}))


def test_leftovers_of_killed_readers_are_removed(recipe):
    collections = recipe.cache / "collections-5"
    leftover = beside(collections / "documents-1-1.arrow", "unfinished")
    collections.mkdir(parents=True)
    leftover.write_text("x")
    beside(collections / "documents-1-1.arrow", "writing").touch()
    digest = stored_collection(recipe).digest
    assert [path.name for path in collections.iterdir()] == [digest[:32]]
