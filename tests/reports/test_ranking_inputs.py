from shutil import rmtree

import pytest
from helpers.small_set import ONE_STEP

from pyserini_ance.pipeline.preparation import read_collection, stored_collection
from pyserini_ance.recipe.load import dump
from pyserini_ance.reports.ranking_inputs import collection_of, collection_with, open_ranking, ranking_file
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
    assert collection_of(run).digest == collection.digest
    rmtree(tmp_path / "cache")
    read = collection_of(run)
    assert read.digest == collection.digest and [*read.documents.ids] == collection.documents.ids
    run.environment.unlink()
    with pytest.raises(FileNotFoundError, match=r"is not a run directory \(environment.json is missing\)"):
        collection_of(run)


def test_a_run_whose_cache_cannot_be_used_here_takes_the_users_own(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    (file := tmp_path / "file").touch()  # no folder can be made in it, by root either
    recipe, run = small_recipe({"only": ONE_STEP}, cache=str(file / "cache")), RunDir(tmp_path / "run")
    run.create(dump(recipe))
    assert run.read_recipe().cache == tmp_path / "own" / "pyserini_ance"


def test_a_split_that_the_run_does_not_use_can_be_read(small_recipe, tmp_path):
    recipe = small_recipe({"only": ONE_STEP}, cache=str(tmp_path))
    collection, more = stored_collection(recipe), collection_with(recipe, "dev")
    assert set(collection.splits) == {"train", "test"}
    assert list(more.split("dev").queries.ids) == [f"dev-{i}" for i in range(5)]
    assert more.documents.digest == collection.documents.digest
    with pytest.raises(ValueError, match="no split 'devv'; splits: train, dev, test"):
        collection_with(recipe, "devv")


def test_a_row_a_file_and_a_recipe(ranked, tmp_path, small_recipe):
    folder = ranked.file.parent
    assert open_ranking(f"{folder}:bm25").file == folder / "runs" / "bm25.test.trec"
    by_recipe = open_ranking(str(folder / "recipe.yaml"), ranked.file)
    assert by_recipe.run == ranked.run
    assert by_recipe.qrels == ranked.qrels
    assert by_recipe.identity == {**ranked.identity, "ranking": str(ranked.file)}
    assert ranked.qrels["test-0"] == {"red-horse": 1} and len(ranked.qrels) == 5
    no_row = r"run has no ranking of split 'test' .*bm52.test.trec is missing\); rows that have one: bm25"
    no_split = r"have one: none; a run .* final_evaluation.split=\[test,dev\] has them"
    two = "run:bm25 is one ranking and --run .*run.test.trec another"
    for error, message, call in (
        (ValueError, no_row, lambda: open_ranking(f"{folder}:bm52")),
        (ValueError, no_split, lambda: ranking_file(RunDir(folder), None, "dev")),
        (ValueError, two, lambda: open_ranking(f"{folder}:bm25", ranked.file)),
        (FileNotFoundError, "is not a run directory", lambda: open_ranking(f"{folder}/recipe.yaml")),
    ):
        with pytest.raises(error, match=message):
            call()
