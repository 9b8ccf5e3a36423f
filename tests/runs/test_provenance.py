"""config_hash: runs that differ by chance or machine alone share it."""

import shutil

import pytest

from pyserini_ance.recipe.load import dump, load
from pyserini_ance.runs.provenance import config_hash, config_hash_of
from pyserini_ance.runs.rundir import RunDir


@pytest.mark.parametrize(
    "override",
    [
        "seed=7",
        "threads=3",
        "refresher={launch: external, threads: 2}",
        "retention={save_total_limit: 3, keep_negatives: 1}",
        "device=cpu",
        "cache=/elsewhere",
        "documents_per_part=1000",
        "encoding={search: torch, documents_per_block: 7, memory_gib: 0.5}",
        "description=again",
        "expect={dev: {RR@10: 0.5}}",
    ],
)
def test_runs_that_differ_by_chance_or_machine_share_a_hash(override):
    assert config_hash(load("demo/ance", override).recipe) == config_hash(load("demo/ance").recipe)


@pytest.mark.parametrize(
    "override",
    [
        "stages.ance.steps=121",
        "stages.ance.refresh.mode=async",
        "precision=fp32",
        "encoding.precision=fp32",
        "final_evaluation.hits=200",
        "name=other",
    ],
)
def test_runs_with_other_settings_do_not_share_a_hash(override):
    assert config_hash(load("demo/ance", override).recipe) != config_hash(load("demo/ance").recipe)


def test_runs_that_start_from_seeds_of_one_recipe_share_a_hash(tmp_path):
    def started(warm_up: str, *overrides: str) -> str:
        folder = tmp_path / "-".join([warm_up, *overrides]).replace("/", "-")
        RunDir(folder).create(dump(load(warm_up, *overrides).recipe))
        return config_hash(load("demo/bm25-rand", f"stages.rand.init_from={{run: {folder}}}").recipe)

    assert started("demo/warmup", "seed=1") == started("demo/warmup", "seed=2")
    assert (
        len({started("demo/warmup"), started("demo/bm25"), config_hash(load("demo/bm25-rand").recipe)}) == 3
    )


def test_a_key_missing_in_an_older_recipe_has_its_default(tmp_path):
    run, recipe = RunDir(tmp_path / "run"), load("demo/ance").recipe
    text = dump(recipe)
    assert text.count("\n  rm3: null\n") == 1
    run.create(text.replace("\n  rm3: null\n", "\n"))
    assert config_hash_of(run, "recorded") == config_hash(recipe)


def test_an_unreadable_recipe_has_the_recorded_hash(tmp_path):
    run = RunDir(tmp_path / "run")
    assert config_hash_of(run, "recorded") == "recorded"
    run.create(dump(load("demo/ance").recipe) + "former_key: 1\n")
    assert config_hash_of(run, "recorded") == "recorded"


def test_a_run_whose_source_run_is_gone_has_the_recorded_hash(tmp_path):
    warm_up, run = RunDir(tmp_path / "warm-up"), RunDir(tmp_path / "run")
    warm_up.create(dump(load("demo/warmup").recipe))
    recipe = load("demo/bm25-rand", f"stages.rand.init_from={{run: {warm_up.folder}}}").recipe
    run.create(dump(recipe))
    assert config_hash_of(run, "recorded") == config_hash(recipe)
    shutil.rmtree(warm_up.folder)
    assert config_hash_of(run, "recorded") == "recorded"
