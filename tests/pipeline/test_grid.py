import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.stages import RANDOM, make_stage, recipe_file
from helpers.waiting import until

from pyserini_ance.pipeline import grid
from pyserini_ance.pipeline.grid import GridRuns
from pyserini_ance.recipe.grid_spec import Grid
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import weights_of
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.vectors.encoding import Shard

STAGE = make_stage(RANDOM, steps=2, evaluate={"every_steps": 2, "keep_best": False})
FILE = "- stages.a.steps: [2, 3]\n- {stages.a.steps: 2, stages.a.optimizer.learning_rate: 1e+38}\n"
SHORT, LONG, DIVERGING = "steps=2", "steps=3", "steps=2,learning_rate=1e+38"


@pytest.fixture
def recipe(small_recipe, tmp_path) -> Path:
    return recipe_file(small_recipe({"a": STAGE}), tmp_path)


def status(folder: Path) -> dict[str, str]:
    return {run["run"]: run["status"] for run in json.loads((folder / "grid.json").read_text())["runs"]}


def stopped(run: Path) -> bool:
    return json.loads((run / "state.json").read_text())["status"] == "stopped"


def test_a_grid_continues_after_kills_of_itself_and_of_its_runs(server, recipe, tmp_path):
    """The grid is killed and terminated in its second run, then that run is; the third always fails."""
    (tmp_path / "grid.yaml").write_text(FILE)
    folder = tmp_path / "runs"
    given = [str(recipe), "threads=1", "--grid", str(tmp_path / "grid.yaml"), "--output", str(folder)]

    server.run("train", given, code=-9, fault="kill_parent_in_step", stage="3", step=1)
    until(lambda: stopped(folder / LONG), 60)
    assert status(folder) == {SHORT: "finished", LONG: "running", DIVERGING: "waiting"}
    first = (folder / SHORT / "measures.json").stat().st_mtime_ns

    terminated = server.run("train", given, code=130, fault="terminate_parent_in_step", stage="3", step=1)
    until(lambda: stopped(folder / LONG), 60)
    assert f"{SHORT} had already finished" in terminated["stderr"]

    done = server.run("train", given, code=1, fault="kill_in_step", stage="3", step=2)
    assert status(folder) == {SHORT: "finished", LONG: "failed", DIVERGING: "failed"}
    assert f"grid, 2 of 3: {LONG} has failed: killed by signal 9" in done["stderr"]
    assert f"grid, 3 of 3: {DIVERGING} has failed: stage a, step " in done["stderr"]
    assert "lower stages.a.optimizer.learning_rate" in done["stderr"]
    assert " failed " in done["stdout"]

    done = server.run("train", given, code=1)
    assert status(folder) == {SHORT: "finished", LONG: "finished", DIVERGING: "failed"}
    assert (folder / SHORT / "measures.json").stat().st_mtime_ns == first
    short, long, diverging = json.loads((folder / "grid.json").read_text())["runs"]
    last = json.loads((folder / LONG / "measures.json").read_text())["rows"][-1]
    assert (long["steps"], long.get("learning_rate"), long["RR@10"]) == ("3", None, last["RR@10"])
    assert 0 < short["dev best"] <= 1 and short["seconds"] >= 0
    assert (diverging["learning_rate"], diverging["status"]) == ("1e+38", "failed")
    assert diverging.get("RR@10") is None
    assert (folder / "grid.md").read_text().strip() == done["stdout"].strip()


def runs_of(recipe: Path, *grid: str) -> GridRuns:
    return GridRuns(str(recipe), ["threads=1"], Grid.parse(grid), recipe.parent / "runs")


def test_recipes_of_a_grid_start_from_runs_of_the_grid(server, small_recipe, tmp_path):
    warm = recipe_file(small_recipe({"a": STAGE}), tmp_path, "warm")
    cold_stage = {**STAGE, "init_from": {"recipe": str(warm)}, "evaluate": None}
    cold = recipe_file(small_recipe({"b": cold_stage}), tmp_path, "cold")
    given = ["threads=1", "--output", str(tmp_path / "runs"), "--grid", "seed=1,2"]
    refused = server.run("train", [*given, f"recipe={cold},{warm}"], code=1)
    assert f"stages.b starts from {warm}, which comes later in the grid; list it first" in refused["stderr"]
    server.run("train", [*given, f"recipe={warm},{cold}"])
    made = json.loads((tmp_path / "runs" / "grid.json").read_text())["runs"]
    runs = {(run["seed"], run["recipe"]): tmp_path / "runs" / run["run"] for run in made}
    assert list(runs) == [(seed, str(recipe)) for seed in "12" for recipe in (warm, cold)]
    weights = [weights_of(runs[seed, str(warm)] / "model") for seed in "12"]
    folders = [runs[seed, str(cold)] / "checkpoints/start-b-00000000/encoder" for seed in "12"]
    assert weights == [weights_of(folder) for folder in folders]
    assert weights[0] != weights[1]


def test_jobs_share_the_cores_end_with_a_killed_command_and_go_on(server, small_recipe, tmp_path):
    folder = tmp_path / "runs"
    recipe = recipe_file(small_recipe({"a": {**STAGE, "evaluate": None, "steps": 150}}), tmp_path)
    given = [str(recipe), "--output", str(folder), "--grid", "seed=1,2,3", "--jobs", "2"]
    pid = server.start("train", given)
    both = [folder / f"seed={seed}" for seed in (1, 2)]
    until(lambda: all((run / "metrics.jsonl").exists() for run in both), 120)
    os.kill(pid, signal.SIGKILL)
    server.wait(pid, code=-9)
    until(lambda: all(stopped(run) for run in both), 60)
    done = server.run("train", given)
    assert set(status(folder).values()) == {"finished"}
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    assert {RunDir(run).read_recipe().threads for run in folder.glob("seed=?")} == {share}
    assert done["stdout"] == (folder / "grid.md").read_text() + "\n"


def make_run(run: RunDir, recipe: Recipe) -> None:
    run.create(dump(recipe), overwrite=True)
    rows = [
        {"row": "untrained", "RR@10": 0.1, "test seconds": 9.0},
        {"row": "w", "RR@10": 0.3, "train seconds": 1.0, "refresh seconds": 0.5, "test seconds": 2.0},
        {"row": "a", "RR@10": 0.5, "train seconds": 4.0, "refresh seconds": 2.0, "test seconds": 1.0},
    ]
    measured = {"recipe": "small", "config_hash": "v", "measures": ["RR@10"], "rows": rows}
    run.measures.write_text(json.dumps(measured))
    best = [{"event": "best", "stage": stage, "value": value} for stage, value in zip("waa", (0.9, 0.5, 0.6))]
    run.decisions.write_text("".join(json.dumps(record) + "\n" for record in best))
    run.trainer.mark("finished", "the end")


@pytest.fixture
def trained(monkeypatch, tmp_path) -> Callable[[], list[str]]:
    """A stand-in for training; returns the names of the runs that grids have trained, in order."""

    def train(recipe, folder, overwrite, resume):
        with open(tmp_path / "trained", "a") as file:
            file.write(f"{folder.name}\n")
        make_run(RunDir(folder), recipe)

    monkeypatch.setattr(grid, "train", train)
    return lambda: (tmp_path / "trained").read_text().split()


def train_grid(runs: GridRuns, overwrite: bool = False, **settings) -> list[str]:
    assert runs.run(runs.check(overwrite), overwrite, **settings)
    return list(status(runs.folder))


def test_a_grid_that_has_grown_continues_its_folder(recipe, tmp_path, trained):
    assert train_grid(runs_of(recipe, "seed=1,2")) == ["seed=1", "seed=2"]
    again = GridRuns(os.path.relpath(recipe), ["threads=2"], Grid.parse(["seed=3,2,1"]), tmp_path / "runs")
    assert train_grid(again) == ["seed=3", "seed=2", "seed=1"]
    assert trained() == ["seed=1", "seed=2", "seed=3"]
    first, *_ = json.loads((tmp_path / "runs" / "grid.json").read_text())["runs"]
    results = {"RR@10": 0.5, "dev best": 0.6, "seconds": 10.5}
    assert first == {"run": "seed=3", "seed": "3", "status": "finished", **results, "reason": None}
    assert (tmp_path / "runs" / "grid.md").read_text().startswith("| seed |  RR@10 | dev best | seconds |")
    file = tmp_path / "grid.yaml"
    file.write_text("- seed: [1, 2, 3]\n- {seed: 1, stages.a.steps: 3}\n")
    assert train_grid(runs_of(recipe, str(file)))[3:] == trained()[3:] == ["seed=1,steps=3"]


def test_other_settings_and_unfit_combinations_are_refused_at_once(recipe, small_recipe, tmp_path, trained):
    train_grid(runs_of(recipe, "seed=1,2"))
    before = (tmp_path / "runs" / "grid.json").read_bytes()
    other = recipe_file(small_recipe({"b": STAGE}), tmp_path, "other")
    RunDir(tmp_path / "run").create("")
    both = "seed: both a key of the --grid, whose values count, and an override; remove"
    for runs, fragment in (
        (runs_of(other, "seed=1,2"), "seed=1 holds a run with other settings (stages."),
        (runs_of(recipe, "stages.a.steps=2,-1"), "--grid, steps=-1: recipe "),
        (replace(runs_of(recipe, "seed=1,2"), overrides=["seed=5"]), both),
        (replace(runs_of(recipe, "seed=1,2"), folder=tmp_path / "run"), "run holds a run; pass another --o"),
    ):
        with pytest.raises((ValueError, FileExistsError)) as error:
            runs.check()
        assert fragment in str(error.value)
    assert (tmp_path / "runs" / "grid.json").read_bytes() == before and trained() == ["seed=1", "seed=2"]
    assert train_grid(runs_of(recipe, "stages.a.steps=3")) == ["steps=3"]  # this grid alone
    assert (tmp_path / "runs" / "seed=1").exists()


def test_tasks_of_a_job_array_train_all_runs_once_and_share_the_tables(small_recipe, tmp_path, trained):
    """A run is in the part of the one that it starts from."""
    warm = recipe_file(small_recipe({"a": STAGE}), tmp_path, "warm")
    cold_stage = {**STAGE, "init_from": {"recipe": str(warm)}}
    cold = recipe_file(small_recipe({"b": cold_stage}), tmp_path, "cold")
    runs = GridRuns(None, [], Grid.parse(["seed=1,2,3", f"recipe={warm},{cold}"]), tmp_path / "runs")
    rows = []
    for part in (1, 2):
        rows.append(train_grid(runs, only=Shard(part, 2), jobs=2))
        if part == 1:
            assert [*status(runs.folder).values()] == ["finished"] * 2 + ["waiting"] * 2 + ["finished"] * 2
            assert {name.partition(",")[0] for name in trained()} == {"seed=1", "seed=3"}
    assert rows[0] == rows[1] == list(runs.grid.points) and sorted(trained()) == sorted(rows[0])
    assert {*status(runs.folder).values()} == {"finished"}
    before = f"stages.b.init_from={{folder: '{runs.folder / sorted(trained())[0]}'}}"  # of another grid
    others = replace(runs_of(cold, "seed=1,2"), overrides=[before])
    assert train_grid(others, only=Shard(1, 2)) == ["seed=1", "seed=2"] and trained()[-1] == "seed=1"
