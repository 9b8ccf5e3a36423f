"""What was read is not read again, unless a file, or what is asked of it, has changed."""

import os
import time

import pytest

from pyserini_ance.experiment import prepare
from pyserini_ance.experiment.prepare import stored_collection

STAGE = {"steps": 1, "batch_queries": 1, "optimizer": {"learning_rate": 1e-3}, "terms": {"query": {"negatives": [{"kind": "random"}]}}}
FILES = ("corpus.jsonl", "train.tsv", "train.qrels", "dev.tsv", "dev.qrels", "test.tsv", "test.qrels")


@pytest.fixture
def read(monkeypatch):
    """The number of readings so far."""
    readings = []
    original = prepare.read_collection
    monkeypatch.setattr(prepare, "read_collection", lambda *given: readings.append(given) or original(*given))
    return readings


@pytest.fixture
def recipe(small_recipe, tmp_path):
    made = small_recipe({"a": STAGE}, cache=str(tmp_path / "cache"))
    age(made, 60)
    return made


def age(recipe, seconds: int) -> None:
    for _, path in recipe.data.files():
        os.utime(path, (time.time() - seconds,) * 2)


def test_unchanged_files_are_read_once(recipe, read):
    first, again = stored_collection(recipe), stored_collection(recipe)
    assert len(read) == 1 and first.digest == again.digest
    assert (list(again.splits), again.skipped) == (list(first.splits), first.skipped)
    assert [path.name for _, path in recipe.data.files()] == list(FILES)


def test_a_changed_file_is_read_again(recipe, read):
    before = stored_collection(recipe)
    age(recipe, 30)
    assert stored_collection(recipe).digest == before.digest and len(read) == 2
    corpus = recipe.data.corpus
    text = corpus.read_text()
    try:
        corpus.write_text(text.replace("the apple is red", "the apple is RED"))
        age(recipe, 10)
        assert stored_collection(recipe).digest != before.digest and len(read) == 3
    finally:
        corpus.write_text(text)


def test_files_that_were_just_written_are_read_again(recipe, read):
    age(recipe, 0)
    stored_collection(recipe), stored_collection(recipe)
    assert len(read) == 2


def test_another_question_is_another_reading(recipe, read):
    stored_collection(recipe)
    stored_collection(recipe.model_copy(update={"data": recipe.data.model_copy(update={"relevance_threshold": 1, "unknown_ids": "skip"})}))
    assert len(read) == 2


def test_a_collection_that_was_removed_is_read_again(recipe, read):
    digest = stored_collection(recipe).digest
    (folder,) = (recipe.cache / "collections").glob(digest[:32])
    os.rename(folder, recipe.cache / "away")
    assert stored_collection(recipe).digest == digest and len(read) == 2


def test_the_recipe_is_checked_all_the_same(recipe, read):
    stored_collection(recipe)
    with pytest.raises(ValueError, match="no split 'training'"):
        stored_collection(recipe.model_copy(update={"test": recipe.test.model_copy(update={"split": ("training",)})}))


def test_what_readers_left_that_were_killed_is_removed(recipe):
    room = recipe.cache / "collections"
    left = room / f".reading.{2**22 + 1}@{os.uname().nodename}.tmp"
    left.mkdir(parents=True)
    (left / "ids.utf8").write_text("x")
    digest = stored_collection(recipe).digest
    assert [path.name for path in room.iterdir()] == [digest[:32]]
