"""The collection of a run: from the cache, or read again and compared."""

from shutil import rmtree

import pytest
from helpers.small_set import ONE_STEP

from pyserini_ance.pipeline.preparation import read_collection, stored_collection
from pyserini_ance.pipeline.ranking_inputs import collection_of, collection_with
from pyserini_ance.recipe.load import dump
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_json


def test_the_collection_is_mapped_or_read_again_and_other_data_is_refused(small_recipe, tmp_path):
    recipe = small_recipe({"only": ONE_STEP}, cache=str(tmp_path / "cache"))
    collection, run = read_collection(recipe), RunDir(tmp_path / "run")
    run.create(dump(recipe))
    write_json(run.environment, {"data": {"digest": "0" * 64}})
    with pytest.raises(ValueError, match="the data .* is not that which"):
        collection_of(run)
    write_json(run.environment, {"data": {"digest": collection.digest}})
    again = collection_of(run)
    assert again.digest == collection.digest
    rmtree(tmp_path / "cache")
    read = collection_of(run)
    assert read.digest == collection.digest and [*read.documents.ids] == collection.documents.ids
    run.environment.unlink()
    with pytest.raises(FileNotFoundError, match=r"is not a run directory \(environment.json is missing\)"):
        collection_of(run)


def test_a_split_that_the_run_does_not_use_can_be_read(small_recipe, tmp_path):
    recipe = small_recipe({"only": ONE_STEP}, cache=str(tmp_path))
    collection, more = stored_collection(recipe), collection_with(recipe, "dev")
    assert set(collection.splits) == {"train", "test"} and list(more.split("dev").queries.ids) == [
        f"dev-{i}" for i in range(5)
    ]
    assert more.documents.digest == collection.documents.digest
    with pytest.raises(ValueError, match="no split 'devv'; splits: train, dev, test"):
        collection_with(recipe, "devv")
