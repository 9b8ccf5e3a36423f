"""Files are not read again unless a file or a setting of the reader has changed."""

import os

import pytest
from helpers.small_set import ONE_STEP

from pyserini_ance.data import collection_cache
from pyserini_ance.data.formats import builder
from pyserini_ance.pipeline import preparation as prepare
from pyserini_ance.pipeline.preparation import stored_collection
from pyserini_ance.storage.files import beside

FILES = ("corpus.jsonl", "train.tsv", "train.qrels", "dev.tsv", "dev.qrels", "test.tsv", "test.qrels")


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
