"""Grids of the train command: one run per combination, resumed and shared by processes."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.waiting import until

from pyserini_ance.commands import train
from pyserini_ance.pipeline import grid_runs
from pyserini_ance.pipeline.grid_runs import GridRuns
from pyserini_ance.recipe.grid_spec import Grid
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import weights_of
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.role import Role

TERMS = {"query": {"negatives": [{"kind": "random"}], "loss": {"kind": "nll", "scale": 0.1}}}
STAGE = {
    "steps": 2,
    "batch_queries": 4,
    "optimizer": {"learning_rate": 1e-3},
    "terms": TERMS,
    "evaluate": {"every_steps": 2, "keep_best": False},
}
FILE = "- stages.a.steps: [2, 3]\n- {stages.a.steps: 2, stages.a.optimizer.learning_rate: 1e+38}\n"
SHORT, LONG, DIVERGING = "steps=2", "steps=3", "steps=2,learning_rate=1e+38"


@pytest.fixture
def recipe(small_recipe, tmp_path) -> Path:
    (tmp_path / "small.yaml").write_text(dump(small_recipe({"a": STAGE})))
    return tmp_path / "small.yaml"


def status(folder: Path) -> dict[str, str]:
    return {run["run"]: run["status"] for run in json.loads((folder / "grid.json").read_text())["runs"]}


def stopped(run: Path) -> bool:
    return json.loads((run / "state.json").read_text())["status"] == "stopped"


def test_a_grid_continues_after_kills_of_itself_and_of_its_runs(server, recipe, tmp_path):
    """The grid is killed and terminated in its second run, then that run is killed; the third never
    succeeds.
    """
    (tmp_path / "grid.yaml").write_text(FILE)
    folder = tmp_path / "runs"
    given = [str(recipe), "threads=1", "--grid", str(tmp_path / "grid.yaml"), "--output", str(folder)]

    killed = server.run("train", given, fault="kill_parent_in_step", stage="3", step=1)
    assert killed["code"] == -9
    until(lambda: stopped(folder / LONG), 60)
    assert status(folder) == {SHORT: "finished", LONG: "waiting", DIVERGING: "waiting"}
    first = (folder / SHORT / "measures.json").stat().st_mtime_ns

    terminated = server.run("train", given, fault="terminate_parent_in_step", stage="3", step=1)
    until(lambda: stopped(folder / LONG), 60)
    assert terminated["code"] == 130 and f"{SHORT} had already finished" in terminated["stderr"]

    done = server.run("train", given, fault="kill_in_step", stage="3", step=2)
    assert done["code"] == 1 and status(folder) == {SHORT: "finished", LONG: "failed", DIVERGING: "failed"}
    assert f"grid, 2 of 3: {LONG} has failed: killed by signal 9" in done["stderr"]
    assert (
        f"grid, 3 of 3: {DIVERGING} has failed: stage a, step " in done["stderr"]
        and "lower stages.a.optimizer.learning_rate" in done["stderr"]
    )
    assert " failed " in done["stdout"]

    done = server.run("train", given)
    assert done["code"] == 1 and status(folder) == {SHORT: "finished", LONG: "finished", DIVERGING: "failed"}
    assert (folder / SHORT / "measures.json").stat().st_mtime_ns == first
    with open(folder / "grid.csv") as file:
        short, long, diverging = csv.DictReader(file)
    last = json.loads((folder / LONG / "measures.json").read_text())["rows"][-1]
    assert (long["steps"], long["learning_rate"], float(long["RR@10"])) == ("3", "", last["RR@10"])
    assert 0 < float(short["dev best"]) <= 1 and float(short["seconds"]) >= 0
    assert (diverging["learning_rate"], diverging["status"], diverging["RR@10"]) == ("1e+38", "failed", "")
    assert (folder / "grid.md").read_text().strip() == done["stdout"].strip()


def runs_of(recipe: Path, *grid: str) -> GridRuns:
    return GridRuns(str(recipe), ["threads=1"], Grid.parse(grid), recipe.parent / "runs")


def test_an_invalid_combination_is_refused_before_anything_is_trained(recipe, tmp_path):
    with pytest.raises(
        ValueError,
        match=r"--grid, steps=-1: recipe .* is not valid:\n  stages.a.steps: Input should be greater than 0",
    ):
        runs_of(recipe, "stages.a.steps=2,-1").check()
    assert not (tmp_path / "runs").exists()


def test_recipes_of_a_grid_start_from_runs_of_the_grid(server, small_recipe, tmp_path):
    """Each seed has a warm-up of its own."""
    warm, cold = tmp_path / "warm.yaml", tmp_path / "cold.yaml"
    warm.write_text(dump(small_recipe({"a": STAGE})))
    cold.write_text(
        dump(small_recipe({"b": {**STAGE, "init_from": {"recipe": str(warm)}, "evaluate": None}}))
    )
    given = ["threads=1", "--output", str(tmp_path / "runs"), "--grid", "seed=1,2"]
    refused = server.run("train", [*given, f"recipe={cold},{warm}"])
    assert (
        refused["code"] == 1
        and f"stages.b starts from {warm}, which comes later in the grid; list it first" in refused["stderr"]
    )
    done = server.run("train", [*given, f"recipe={warm},{cold}"])
    assert done["code"] == 0, done["stderr"]
    runs = {
        (run["seed"], run["recipe"]): tmp_path / "runs" / run["run"]
        for run in json.loads((tmp_path / "runs" / "grid.json").read_text())["runs"]
    }
    assert list(runs) == [(seed, str(recipe)) for seed in "12" for recipe in (warm, cold)]
    weights = [weights_of(runs[seed, str(warm)] / "model") for seed in "12"]
    assert weights == [
        weights_of(runs[seed, str(cold)] / "checkpoints" / "start-b-00000000" / "encoder") for seed in "12"
    ]
    assert weights[0] != weights[1]


def times_trained(ended: dict, folder: Path) -> dict[str, int]:
    return {
        run.name: ended["stderr"].count(f": {run.name} has finished in ")
        for run in folder.iterdir()
        if (run / "recipe.yaml").exists()
    }


def test_processes_share_a_grid_and_each_run_is_trained_once(server, small_recipe, tmp_path):
    """A run that starts from another one waits for the process that trains it."""
    warm, cold = tmp_path / "warm.yaml", tmp_path / "cold.yaml"
    warm.write_text(dump(small_recipe({"a": {**STAGE, "steps": 6}})))
    cold.write_text(
        dump(small_recipe({"b": {**STAGE, "init_from": {"recipe": str(warm)}, "evaluate": None}}))
    )
    given = ["threads=1", "--output", str(tmp_path / "runs"), "--grid", "seed=1,2", f"recipe={warm},{cold}"]
    both = [server.wait(pid) for pid in [server.start("train", given) for _ in range(2)]]
    assert [ended["code"] for ended in both] == [0, 0], both[0]["stderr"] + both[1]["stderr"]
    first, second = (times_trained(ended, tmp_path / "runs") for ended in both)
    assert len(first) == 4 and all(first[run] + second[run] == 1 for run in first)
    assert (
        sum(first.values())
        and sum(second.values())
        and " is left to another process: " in both[0]["stderr"] + both[1]["stderr"]
    )
    assert both[0]["stdout"] == both[1]["stdout"] == (tmp_path / "runs" / "grid.md").read_text() + "\n"


def grid_of_jobs(small_recipe, folder: Path, steps: int) -> list[str]:
    recipe = folder / "small.yaml"
    recipe.write_text(dump(small_recipe({"a": {**STAGE, "evaluate": None, "steps": steps}})))
    return [str(recipe), "--output", str(folder / "runs"), "--grid", "seed=1,2,3", "--jobs", "2"]


def test_jobs_train_runs_at_once_and_share_the_cores(server, small_recipe, tmp_path):
    folder = tmp_path / "runs"
    given = grid_of_jobs(small_recipe, tmp_path, steps=60)
    done = server.run("train", given)
    assert done["code"] == 0, done["stderr"]
    assert times_trained(done, folder) == {f"seed={seed}": 1 for seed in (1, 2, 3)}
    lines = done["stderr"].splitlines()
    begin, end = (
        {
            seed: next(number for number, line in enumerate(lines) if f"seed={seed} {what}" in line)
            for seed in (1, 2)
        }
        for what in ("begins", "has finished in")
    )
    assert max(begin.values()) < min(end.values())
    assert all(any(f" seed={seed}: stage a: from " in line for line in lines) for seed in (1, 2, 3))
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    assert {RunDir(run).read_recipe().threads for run in folder.glob("seed=?")} == {share}
    assert done["stdout"] == (folder / "grid.md").read_text() + "\n"
    again = server.run("train", [*given, "threads=1"])
    assert again["code"] == 0 and again["stderr"].count("had already finished") == 3


def test_jobs_end_with_a_killed_command_and_go_on_with_the_next(server, small_recipe, tmp_path):
    folder = tmp_path / "runs"
    given = grid_of_jobs(small_recipe, tmp_path, steps=150)
    pid = server.start("train", given)
    both = [folder / f"seed={seed}" for seed in (1, 2)]
    until(lambda: all((run / "metrics.jsonl").exists() for run in both), 120)
    os.kill(pid, signal.SIGKILL)
    assert server.wait(pid)["code"] == -9
    until(lambda: all(stopped(run) for run in both), 60)
    done = server.run("train", given)
    assert done["code"] == 0 and set(status(folder).values()) == {"finished"}, done["stderr"]


def test_the_run_of_a_killed_process_is_taken_over(server, small_recipe, tmp_path):
    recipe, folder = tmp_path / "small.yaml", tmp_path / "runs"
    recipe.write_text(dump(small_recipe({"a": {**STAGE, "evaluate": None}})))
    given = [str(recipe), "threads=1", "--output", str(folder), "--grid", "stages.a.steps=1500,3"]
    # So many steps that the first run still trains when the other process has started and trained its own.
    killed = server.start("train", given)
    until((folder / "steps=1500" / "state.json").exists, 60)
    other = server.start("train", given)
    until(
        lambda: (
            (folder / "grid.json").exists()
            and status(folder) == {"steps=1500": "running", "steps=3": "finished"}
        ),
        120,
    )
    server.kill(killed)
    other = server.wait(other)
    assert other["code"] == 0 and times_trained(other, folder) == {"steps=3": 1, "steps=1500": 1}, other[
        "stderr"
    ]
    assert "grid: steps=1500 is left to another process" in other["stderr"] and status(folder) == {
        "steps=1500": "finished",
        "steps=3": "finished",
    }
    assert '"event": "resume"' in (folder / "steps=1500" / "decisions.jsonl").read_text()


FAILS_ON_END_OF_INPUT = """
import sys
from pathlib import Path
from pyserini_ance.storage.role import Role
with Role(Path(sys.argv[1])).held("here"):
    sys.stdin.read()
    raise RuntimeError("the disk is full")
"""


def held_elsewhere(run: Path) -> subprocess.Popen:
    """A process of the grid that works on a run, and fails when its input ends."""
    lock = run.parent / ".locks" / f"{run.name}.json"
    lock.parent.mkdir(parents=True)
    other = subprocess.Popen(
        [sys.executable, "-c", FAILS_ON_END_OF_INPUT, str(lock)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    until(lock.exists, 60)
    return other


def test_a_run_that_failed_in_another_process_is_not_tried_again(recipe, tmp_path, monkeypatch):
    other, tried = held_elsewhere(tmp_path / "runs" / "steps=2"), []

    def train_in_subprocess(recipe, run, overwrite, label):
        tried.append(run.folder.name)
        other.communicate()
        raise RuntimeError("no luck")

    monkeypatch.setattr(grid_runs, "train_in_subprocess", train_in_subprocess)
    monkeypatch.setattr(grid_runs, "POLL_SECONDS", 0.02)
    runs = runs_of(recipe, "stages.a.steps=2,3")
    assert not runs.run(runs.check())
    assert tried == ["steps=3"]
    assert [run["reason"] for run in json.loads((tmp_path / "runs" / "grid.json").read_text())["runs"]] == [
        "the disk is full",
        "no luck",
    ]


def make_run(run: RunDir, recipe: Recipe, status: str = "finished") -> None:
    run.create(dump(recipe), overwrite=True)
    row = {"row": "a", "RR@10": 0.5, "train seconds": 1.0}
    run.measures.write_text(
        json.dumps({"recipe": "small", "config_hash": "v", "measures": ["RR@10"], "rows": [row]})
    )
    run.mark(status, "the end")


def make_run_elsewhere(run: RunDir, *made) -> None:
    """As another process of the grid does."""
    locks = run.folder.parent / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    with Role(locks / f"{run.folder.name}.json").held("here"):
        make_run(run, *made)


def test_runs_that_others_finish_after_the_start_are_not_overwritten(recipe, tmp_path, monkeypatch):
    """Whether or not this process saw their locks held; runs finished earlier are overwritten."""
    runs, trained = runs_of(recipe, "stages.a.steps=2,3,4"), []
    recipes, places = (
        runs.check(),
        {name: RunDir(tmp_path / "runs" / name) for name in ("steps=2", "steps=3", "steps=4")},
    )
    for name, run in places.items():
        make_run_elsewhere(run, recipes[name])

    def train_in_subprocess(recipe, run, overwrite, label):
        trained.append(run.folder.name)
        make_run(run, recipe)
        if len(trained) == 1:  # in the meantime the other process continues with the next two
            make_run_elsewhere(places["steps=3"], recipes["steps=3"])
            make_run_elsewhere(places["steps=4"], recipes["steps=4"], "stopped")

    monkeypatch.setattr(grid_runs, "train_in_subprocess", train_in_subprocess)
    assert runs.run(recipes, overwrite=True)
    assert trained == ["steps=2", "steps=4"]


def test_a_run_that_is_locked_at_the_start_is_not_overwritten(recipe, tmp_path, monkeypatch):
    other, trained = held_elsewhere(tmp_path / "runs" / "steps=3"), []

    def train_in_subprocess(recipe, run, overwrite, label):
        trained.append(run.folder.name)
        other.communicate()
        make_run(run, recipe)

    monkeypatch.setattr(grid_runs, "train_in_subprocess", train_in_subprocess)
    runs = runs_of(recipe, "stages.a.steps=2,3")
    assert not runs.run(runs.check(), overwrite=True)
    assert trained == ["steps=2"] and status(tmp_path / "runs") == {
        "steps=2": "finished",
        "steps=3": "failed",
    }


def test_a_start_within_the_grid_keeps_the_expectation_and_an_axis_does_not(tmp_path):
    axes = "seed=1,2", "encoder.pooling=mean,cls", "recipe=nfcorpus/warmup,nfcorpus/bm25-rand"
    recipes = GridRuns(None, (), Grid.parse(axes), tmp_path / "grid").check().values()
    assert [bool(one.expect) for one in recipes] == [True, True, False, False] * 2


def test_a_grid_without_recipes_needs_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError,
        match="--grid needs recipes: pass one, as in `pyserini-ance train demo/ance --grid ...`, or "
        "put them into the grid",
    ):
        train.main(["--grid", "seed=1,2"])
    monkeypatch.setattr("pyserini_ance.pipeline.plan.plan", lambda recipe: f"plan of {recipe.name}")
    assert train.main(["--grid", "recipe=demo/bm25,demo/ance", "--print"]) == 0
    assert capsys.readouterr().out == (
        "runs/grid/recipe=demo-bm25:\nplan of demo/bm25\n\nruns/grid/recipe=demo-ance:\nplan of demo/ance\n\n"
    )
    assert train.main(["--grid", "family-demo", "seed=42", "--plan"]) == 0
    assert capsys.readouterr().out.startswith(
        "runs/family-demo/seed=42,recipe=demo-bm25:\nplan of demo/bm25\n"
    )
    with pytest.raises(SystemExit, match="2"):
        train.main(["seed=1"])
    assert "pass a recipe, such as demo/ance, or a --grid with the key `recipe`" in capsys.readouterr().err


def test_a_run_of_other_settings_is_neither_kept_nor_replaced(recipe, small_recipe, tmp_path):
    run = RunDir(tmp_path / "runs" / "steps=2")
    make_run(run, small_recipe({"a": STAGE}, seed=7))
    runs = runs_of(recipe, "stages.a.steps=2")
    message = r"steps=2 holds a run with other settings \(seed: 7 in the run, \d+ given.*\); use --overwrite"
    with pytest.raises(ValueError, match=message):
        runs.check()
    assert runs.check(overwrite=True) and not (tmp_path / "runs" / "grid.json").exists()


@pytest.fixture
def trained(monkeypatch) -> list[str]:
    """The names of the runs that grids have trained, by a stand-in."""
    names = []

    def train_in_subprocess(recipe, run, overwrite, label):
        names.append(run.folder.name)
        make_run(run, recipe)

    monkeypatch.setattr(grid_runs, "train_in_subprocess", train_in_subprocess)
    return names


def train_grid(runs: GridRuns, overwrite: bool = False) -> list[str]:
    """The rows of the tables that the command leaves."""
    assert runs.run(runs.check(overwrite), overwrite)
    return list(status(runs.folder))


def test_a_folder_is_continued_with_other_values_and_its_tables_hold_all(recipe, tmp_path, trained):
    assert train_grid(runs_of(recipe, "seed=1,2")) == ["seed=1", "seed=2"]
    again = GridRuns(os.path.relpath(recipe), ["threads=2"], Grid.parse(["seed=3"]), tmp_path / "runs")
    assert train_grid(again) == ["seed=1", "seed=2", "seed=3"]
    with open(tmp_path / "runs" / "seeds.csv") as file:
        assert [row["seeds"] for row in csv.DictReader(file)] == ["3"]
    assert train_grid(runs_of(recipe, "seed=2")) == ["seed=1", "seed=2", "seed=3"]
    assert trained == ["seed=1", "seed=2", "seed=3"]
    with open(tmp_path / "runs" / "grid.csv") as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["1", "2", "3"]


def test_combinations_that_did_not_begin_are_forgotten(recipe, tmp_path, trained):
    train_grid(runs_of(recipe, "seed=1,2"))
    make_run(RunDir(tmp_path / "runs" / "seed=2"), runs_of(recipe, "seed=2").check()["seed=2"], "stopped")
    assert train_grid(runs_of(recipe, "seed=1")) == ["seed=1"]


def test_a_folder_of_another_grid_is_refused_before_any_work(recipe, small_recipe, tmp_path, trained):
    train_grid(runs_of(recipe, "seed=1,2"))
    before = (tmp_path / "runs" / "grid.json").read_bytes()
    other = tmp_path / "other.yaml"
    other.write_text(dump(small_recipe({"b": STAGE})))
    of_settings = (
        "runs holds runs of a grid of another recipe or other overrides: seed=1, seed=2. Pass another"
    )
    with pytest.raises(ValueError, match=of_settings):
        runs_of(other, "seed=3").check()
    with pytest.raises(ValueError, match=of_settings):
        GridRuns(str(recipe), ["stages.a.steps=9"], Grid.parse(["seed=3"]), tmp_path / "runs").check()
    with pytest.raises(
        ValueError, match="a grid over seed, and this one is over stages.a.steps. Pass another"
    ):
        runs_of(recipe, "stages.a.steps=3").check()
    assert (tmp_path / "runs" / "grid.json").read_bytes() == before and trained == ["seed=1", "seed=2"]


def test_overwrite_lists_this_grid_alone_and_leaves_no_table_of_the_other(recipe, tmp_path, trained, caplog):
    train_grid(runs_of(recipe, "seed=1,2"))
    assert train_grid(runs_of(recipe, "stages.a.steps=3"), overwrite=True) == ["steps=3"]
    assert caplog.messages[0] == "grid: no longer in the tables, being of another grid: seed=1, seed=2"
    assert not (tmp_path / "runs" / "seeds.csv").exists() and (tmp_path / "runs" / "seed=1").exists()


def test_a_grid_file_that_has_grown_continues_its_folder(recipe, tmp_path, trained):
    file = tmp_path / "grid.yaml"
    file.write_text("- seed: [1, 2]\n")
    train_grid(runs_of(recipe, str(file)))
    file.write_text("- seed: [1, 2]\n- {seed: 1, stages.a.steps: 3}\n")
    assert train_grid(runs_of(recipe, str(file))) == ["seed=1", "seed=2", "seed=1,steps=3"]
    assert trained == ["seed=1", "seed=2", "seed=1,steps=3"]


def test_runs_start_from_runs_of_earlier_commands_in_the_folder(small_recipe, tmp_path, trained):
    warm, cold = tmp_path / "warm.yaml", tmp_path / "cold.yaml"
    warm.write_text(dump(small_recipe({"a": STAGE})))
    cold.write_text(dump(small_recipe({"b": {**STAGE, "init_from": {"recipe": str(warm)}}})))
    grids = [
        GridRuns(None, [], Grid.parse(["seed=1", f"recipe={names}"]), tmp_path / "runs")
        for names in (warm, cold, f"{warm},{cold}")
    ]
    train_grid(grids[0])
    (recipe,) = grids[1].check().values()
    assert recipe.stages["b"].init_from.run == tmp_path / "runs" / trained[0]
    assert len(train_grid(grids[1])) == len(train_grid(grids[2])) == len(trained) == 2


def test_an_override_of_a_key_of_the_grid_is_refused(recipe, tmp_path):
    with pytest.raises(ValueError, match="seed: both a key of the --grid, .* remove the override"):
        GridRuns(str(recipe), ["seed=5"], Grid.parse(["seed=1"]), tmp_path / "runs").check()


def test_a_run_directory_and_torchrun_are_refused(recipe, tmp_path, monkeypatch):
    RunDir(tmp_path / "runs").create("")
    with pytest.raises(FileExistsError, match="runs holds a run; pass another --output"):
        runs_of(recipe, "seed=1,2").check()
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ValueError, match="without torchrun"):
        runs_of(recipe, "seed=1,2").check()


def test_print_shows_the_plan_of_each_run_and_options_exclude_one_another(
    recipe, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert train.main([str(recipe), "--grid", "seed=1", "stages.a.steps=5,6", "--print"]) == 0
    first, second = capsys.readouterr().out.strip().split("\n\nruns/")
    assert first.startswith("runs/small-grid/seed=1,steps=5:\n") and "| a     |" in first and " 5 |" in first
    assert second.startswith("small-grid/seed=1,steps=6:\n") and " 6 |" in second
    with pytest.raises(SystemExit, match="2"):
        train.main([str(recipe), "--grid", "seed=1,2", "--resume"])
    assert "--grid resumes stopped runs by itself" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        train.main([str(recipe), "--jobs", "2"])
    assert "add --grid, or remove --jobs" in capsys.readouterr().err
