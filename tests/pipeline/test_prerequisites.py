import logging
import os
from pathlib import Path

import pytest
from helpers.stages import RANDOM, make_stage

import pyserini_ance as pa
from pyserini_ance.commands import train as command
from pyserini_ance.pipeline import experiment
from pyserini_ance.pipeline import prerequisites as module
from pyserini_ance.pipeline.prerequisites import inherit, prerequisites
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json

STAGE = make_stage(RANDOM, steps=2)


@pytest.fixture
def chain(small_recipe, tmp_path, monkeypatch) -> Path:
    """An empty working directory with `last.yaml`, which starts from `middle.yaml`, which starts from
    `first.yaml`."""
    monkeypatch.chdir(tmp_path)
    before = {"first": {}, "middle": {"recipe": "first.yaml"}, "last": {"recipe": "middle.yaml"}}
    for name, start in before.items():
        stage = {**STAGE, **({"init_from": start} if start else {})}
        Path(f"{name}.yaml").write_text(dump(small_recipe({name: stage}, name=name)))
    return tmp_path


def trained_in_order(caplog) -> list[str]:
    return [r.message.split(": ")[1] for r in caplog.records if r.message.startswith("prerequisite ")]


def status(name: str) -> str:
    return RunDir(Path("runs") / name).read_state()["status"]


def test_what_a_recipe_starts_from_is_trained_first_and_used_again(chain, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    command.main(["last.yaml", "seed=7", "threads=1"])
    assert trained_in_order(caplog) == ["first", "middle"]
    runs = {name: RunDir(Path("runs") / name) for name in ("first", "middle", "last")}
    seeds = {name: (run.read_recipe().seed, run.read_recipe().threads) for name, run in runs.items()}
    assert seeds == {"first": (42, 1), "middle": (42, 1), "last": (7, 1)}
    started = read_json(runs["last"].environment)["initial_weights"]["start-last"]
    assert started["encoder"] == "runs/middle/checkpoints/middle-00000002/encoder"
    monkeypatch.setattr(experiment, "train", lambda *_, **__: pytest.fail("it was trained"))
    last, middle = runs["last"], runs["middle"]
    assert list(module.train_prerequisites(last.read_recipe(), last.folder, overwrite=True)) == []
    Path("runs/first").rename("elsewhere")  # the run that started from it holds its weights
    assert list(module.train_prerequisites(middle.read_recipe(), middle.folder, resume=True)) == []


def test_an_unfinished_run_is_resumed_with_its_own_settings(chain, caplog):
    """It was stopped at its first step, and holds a copy of its start: that run is not asked for again."""

    class Stop(pa.TrainerCallback):
        def on_step_end(self, stage, step, losses, metrics):
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        pa.train(pa.load_recipe("middle.yaml", "stages.middle.steps=3"), callbacks=[Stop()])
    assert (status("first"), status("middle")) == ("finished", "failed")
    (middle,) = prerequisites(load("last.yaml").recipe)
    assert middle.status == "unfinished"
    assert middle.describe() == (
        "middle: resumed first in runs/middle, 3 steps in all; its settings are not those of middle: "
        "stages.middle.steps: 3 in the run, 2 given"
    )
    caplog.set_level(logging.INFO)
    run = pa.train("last.yaml")
    assert trained_in_order(caplog) == ["middle"] and run.table[-1]["row"] == "last"
    start, middle = run.table[1], read_json(Path("runs/middle/measures.json"))["rows"][-1]
    assert start["row"] == "start-last" and "train seconds" not in start
    assert [start[name] for name in ("RR@10", "R@20")] == [middle[name] for name in ("RR@10", "R@20")]
    assert Path("runs/middle/checkpoints/middle-00000003/encoder").is_dir()


def test_without_prerequisites_the_command_is_named_and_nothing_is_trained(chain):
    for refuse in (
        lambda: command.main(["last.yaml", "--no-prerequisites"]),
        lambda: pa.train("last.yaml", prerequisites=False),
    ):
        with pytest.raises(RuntimeError, match="holds no run; make it with: pyserini-ance train middle.yaml"):
            refuse()
    assert not Path("runs").exists()


def test_what_would_stop_the_last_run_stops_the_first(chain, small_recipe):
    Path("runs/last").mkdir(parents=True)
    Path("runs/last/notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="runs/last holds other files"):
        command.main(["last.yaml"])
    with pytest.raises(FileNotFoundError, match="holds no run to resume"):
        command.main(["last.yaml", "--resume", "--output", "runs/other"])
    with pytest.raises(FileNotFoundError, match="data.corpus: nowhere.jsonl"):
        command.main(["last.yaml", "data.corpus=nowhere.jsonl", "--output", "runs/other"])
    assert [path.name for path in Path("runs").iterdir()] == ["last"]


def test_overrides_of_the_data_are_inherited_where_the_files_have_the_same_data(chain, small_recipe):
    file, other = load("last.yaml").recipe, small_recipe({"a": STAGE}, data={"kind": "docstrings"})
    recipe = load("last.yaml", "data.skip=[unknown_ids]", "threads=2", "seed=1", "stages.last.steps=5").recipe
    required = load("middle.yaml").recipe.model_copy(update={"expect": {"test": {"RR@10": 0.5}}})
    inherited = inherit(required, recipe, file)
    assert (inherited.data, inherited.threads, inherited.seed) == (recipe.data, 2, 42)
    assert inherited.expect == {} and inherited.stages == required.stages
    assert inherit(other, recipe, file).data == other.data and inherit(other, recipe, file).threads == 2
    (first, middle) = prerequisites(recipe, file)
    assert first.recipe.data == middle.recipe.data == recipe.data


def test_recipes_that_start_from_one_another_are_refused(chain, small_recipe):
    stage = {**STAGE, "init_from": {"recipe": "last.yaml"}}
    Path("first.yaml").write_text(dump(small_recipe({"first": stage}, name="first")))
    with pytest.raises(
        ValueError,
        match="stages.first.init_from: recipes start from one another in a circle: "
        "last -> middle -> first -> last$",
    ):
        prerequisites(load("last.yaml").recipe)


def test_print_shows_the_chain_and_its_cost(chain, capsys):
    command.main(["last.yaml", "--print"])
    shown = capsys.readouterr().out
    assert (
        "first: trained first in runs/first, 2 steps\nmiddle: trained first in runs/middle, 2 steps\n"
        in shown
    )
    assert shown.endswith("all 3 runs: 6 steps of 24 queries\n") and not Path("runs").exists()


def test_shipped_chains_end_at_a_recipe_that_starts_from_the_initial_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {
        "msmarco-passage/ltre-ance": ["msmarco-passage/bm25", "msmarco-passage/ance"],
        "msmarco-doc/dance": ["msmarco-passage/bm25", "msmarco-doc/ance-firstp"],
        "nq/ance": ["nq/dpr"],
    }
    for name, before in names.items():
        assert [one.name for one in prerequisites(load(name).recipe)] == before


def train_in(folder: Path) -> None:
    os.chdir(folder)
    command.main(["middle.yaml"])


def test_processes_of_torchrun_train_a_chain_together(run_processes, chain):
    run_processes(2, train_in, chain, join=False)
    assert (status("first"), status("middle")) == ("finished", "finished")
