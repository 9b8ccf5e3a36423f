import shutil

import pytest

from pyserini_ance.recipe.load import dump, load
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.runs.variant import variant, variant_of


@pytest.mark.parametrize(
    "override",
    ["seed=7", "threads=3", "refresher={start: elsewhere, threads: 2}", "keep={checkpoints: 3, tables: 1}", "device=cpu", "cache=/elsewhere"]
    + ["about=again", "expect={dev: {RR@10: 0.5}}"],
)
def test_runs_that_differ_by_chance_or_place_share_a_variant(override):
    assert variant(load("demo/ance", override).recipe) == variant(load("demo/ance").recipe)


@pytest.mark.parametrize(
    "override",
    ["stages.ance.steps=121", "stages.ance.refresh.run=background", "precision=fp32", "encoding.precision=fp32", "test.hits=200", "name=other"],
)
def test_runs_that_do_something_else_do_not(override):
    assert variant(load("demo/ance", override).recipe) != variant(load("demo/ance").recipe)


def test_runs_that_start_from_seeds_of_one_recipe_share_a_variant(tmp_path):
    def started(warm_up: str, *overrides: str) -> str:
        folder = tmp_path / "-".join([warm_up, *overrides]).replace("/", "-")
        RunDir(folder).create(dump(load(warm_up, *overrides).recipe))
        return variant(load("demo/bm25-rand", f"stages.rand.start={{run: {folder}}}").recipe)

    assert started("demo/warmup", "seed=1") == started("demo/warmup", "seed=2")
    assert len({started("demo/warmup"), started("demo/bm25"), variant(load("demo/bm25-rand").recipe)}) == 3


def test_a_recipe_that_is_older_than_a_key_is_that_with_its_default(tmp_path):
    run, recipe = RunDir(tmp_path / "run"), load("demo/ance").recipe
    text = dump(recipe)
    assert text.count("\n  rm3: null\n") == 1
    run.create(text.replace("\n  rm3: null\n", "\n"))
    assert variant_of(run, "recorded") == variant(recipe)


def test_what_this_version_cannot_read_is_what_it_was_recorded_as(tmp_path):
    run = RunDir(tmp_path / "run")
    assert variant_of(run, "recorded") == "recorded"
    run.create(dump(load("demo/ance").recipe) + "former_key: 1\n")
    assert variant_of(run, "recorded") == "recorded"


def test_a_run_whose_start_is_gone_is_what_it_was_recorded_as(tmp_path):
    warm_up, run = RunDir(tmp_path / "warm-up"), RunDir(tmp_path / "run")
    warm_up.create(dump(load("demo/warmup").recipe))
    recipe = load("demo/bm25-rand", f"stages.rand.start={{run: {warm_up.folder}}}").recipe
    run.create(dump(recipe))
    assert variant_of(run, "recorded") == variant(recipe)
    shutil.rmtree(warm_up.folder)
    assert variant_of(run, "recorded") == "recorded"
