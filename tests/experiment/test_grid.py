"""Grids of the train command: a run for each combination, whatever ends one of them, or the grid."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from pyserini_ance import train
from pyserini_ance.experiment import grid
from pyserini_ance.experiment.grid import GridRuns, Progress
from pyserini_ance.recipe.grid import Grid
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import weights_of
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.post import Post

TERMS = {"query": {"negatives": [{"kind": "random"}], "loss": {"kind": "nll", "scale": 0.1}}}
STAGE = {"steps": 2, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3}, "terms": TERMS, "evaluate": {"every_steps": 2}}
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


def test_a_grid_goes_on_whatever_ends_it_or_one_of_its_runs(servant, recipe, tmp_path):
    """The grid is killed and terminated in its second run, then that run is killed; the third never succeeds."""
    (tmp_path / "grid.yaml").write_text(FILE)
    folder = tmp_path / "runs"
    given = [str(recipe), "threads=1", "--grid", str(tmp_path / "grid.yaml"), "--output", str(folder)]

    killed = servant.run("train", given, trouble="kill_parent_in_step", stage="3", step=1)
    assert killed["code"] == -9
    until(lambda: stopped(folder / LONG), 60)
    assert status(folder) == {SHORT: "finished", LONG: "waiting", DIVERGING: "waiting"}
    first = (folder / SHORT / "measures.json").stat().st_mtime_ns

    terminated = servant.run("train", given, trouble="terminate_parent_in_step", stage="3", step=1)
    until(lambda: stopped(folder / LONG), 60)
    assert terminated["code"] == 130 and f"{SHORT} has finished before" in terminated["stderr"]

    done = servant.run("train", given, trouble="kill_in_step", stage="3", step=2)
    assert done["code"] == 2 and status(folder) == {SHORT: "finished", LONG: "failed", DIVERGING: "failed"}
    assert f"grid, 2 of 3: {LONG} has failed: killed by signal 9" in done["stderr"]
    assert f"grid, 3 of 3: {DIVERGING} has failed: stage a, step " in done["stderr"] and "lower stages.a.optimizer.learning_rate" in done["stderr"]
    assert " failed " in done["stdout"]

    done = servant.run("train", given)
    assert done["code"] == 2 and status(folder) == {SHORT: "finished", LONG: "finished", DIVERGING: "failed"}
    assert (folder / SHORT / "measures.json").stat().st_mtime_ns == first
    with open(folder / "grid.csv") as file:
        short, long, diverging = csv.DictReader(file)
    last = json.loads((folder / LONG / "measures.json").read_text())["rows"][-1]
    assert (long["steps"], long["learning_rate"], float(long["RR@10"])) == ("3", "", last["RR@10"])
    assert 0 < float(short["dev best"]) <= 1 and float(short["seconds"]) > 0
    assert (diverging["learning_rate"], diverging["status"], diverging["RR@10"]) == ("1e+38", "failed", "")
    assert (folder / "grid.md").read_text().strip() == done["stdout"].strip()


def runs_of(recipe: Path, *grid: str) -> GridRuns:
    return GridRuns(str(recipe), ["threads=1"], Grid.parse(grid), recipe.parent / "runs")


def test_a_combination_that_is_no_recipe_is_refused_before_anything_is_trained(recipe, tmp_path):
    with pytest.raises(ValueError, match=r"--grid, steps=-1: recipe .* is not valid:\n  stages.a.steps: Input should be greater than 0"):
        runs_of(recipe, "stages.a.steps=2,-1").check()
    assert not (tmp_path / "runs").exists()


def test_a_grid_of_recipes_starts_them_from_runs_of_its_own(servant, small_recipe, tmp_path):
    """Each seed has a warm-up of its own."""
    warm, cold = tmp_path / "warm.yaml", tmp_path / "cold.yaml"
    warm.write_text(dump(small_recipe({"a": STAGE})))
    cold.write_text(dump(small_recipe({"b": {**STAGE, "start": {"recipe": str(warm)}, "evaluate": None}})))
    given = ["threads=1", "--output", str(tmp_path / "runs"), "--grid", "seed=1,2"]
    refused = servant.run("train", [*given, f"recipe={cold},{warm}"])
    assert refused["code"] == 2 and f"stages.b starts from {warm}, which comes later in the grid; name it first" in refused["stderr"]
    done = servant.run("train", [*given, f"recipe={warm},{cold}"])
    assert done["code"] == 0, done["stderr"]
    runs = {(run["seed"], run["recipe"]): tmp_path / "runs" / run["run"] for run in json.loads((tmp_path / "runs" / "grid.json").read_text())["runs"]}
    assert list(runs) == [(seed, str(recipe)) for seed in "12" for recipe in (warm, cold)]
    weights = [weights_of(runs[seed, str(warm)] / "model") for seed in "12"]
    assert weights == [weights_of(runs[seed, str(cold)] / "checkpoints" / "start-b-00000000" / "encoder") for seed in "12"]
    assert weights[0] != weights[1]


def times_trained(ended: dict, folder: Path) -> dict[str, int]:
    return {run.name: ended["stderr"].count(f": {run.name} has finished, ") for run in folder.iterdir() if (run / "recipe.yaml").exists()}


def test_processes_share_a_grid_and_each_run_is_trained_once(servant, small_recipe, tmp_path):
    """What starts from a run waits for whoever has it in hand."""
    warm, cold = tmp_path / "warm.yaml", tmp_path / "cold.yaml"
    warm.write_text(dump(small_recipe({"a": {**STAGE, "steps": 6}})))
    cold.write_text(dump(small_recipe({"b": {**STAGE, "start": {"recipe": str(warm)}, "evaluate": None}})))
    given = ["threads=1", "--output", str(tmp_path / "runs"), "--grid", "seed=1,2", f"recipe={warm},{cold}"]
    both = [servant.wait(pid) for pid in [servant.start("train", given) for _ in range(2)]]
    assert [ended["code"] for ended in both] == [0, 0], both[0]["stderr"] + both[1]["stderr"]
    first, second = (times_trained(ended, tmp_path / "runs") for ended in both)
    assert len(first) == 4 and all(first[run] + second[run] == 1 for run in first)
    assert sum(first.values()) and sum(second.values()) and " is left to another process: " in both[0]["stderr"] + both[1]["stderr"]
    assert both[0]["stdout"] == both[1]["stdout"] == (tmp_path / "runs" / "grid.md").read_text() + "\n"


def test_what_a_killed_process_was_at_work_on_is_taken_over(servant, small_recipe, tmp_path):
    recipe, folder = tmp_path / "small.yaml", tmp_path / "runs"
    recipe.write_text(dump(small_recipe({"a": {**STAGE, "evaluate": None}})))
    given = [str(recipe), "threads=1", "--output", str(folder), "--grid", "stages.a.steps=300,3"]
    killed = servant.start("train", given)
    until((folder / "steps=300" / "state.json").exists, 60)
    other = servant.start("train", given)
    until(lambda: (folder / "grid.json").exists() and status(folder) == {"steps=300": "running", "steps=3": "finished"}, 60)
    servant.kill(killed)
    other = servant.wait(other)
    assert other["code"] == 0 and times_trained(other, folder) == {"steps=3": 1, "steps=300": 1}, other["stderr"]
    assert "grid: steps=300 is left to another process" in other["stderr"] and status(folder) == {"steps=300": "finished", "steps=3": "finished"}
    assert '"event": "resume"' in (folder / "steps=300" / "decisions.jsonl").read_text()


FAILS_WHEN_TOLD = """
import sys
from pathlib import Path
from pyserini_ance.storage.post import Post
with Post(Path(sys.argv[1])).hold("here"):
    sys.stdin.read()
    raise RuntimeError("the disk is full")
"""


def held_elsewhere(run: Path) -> subprocess.Popen:
    """A process of the grid that is at work on a run, and fails when its input ends."""
    post = run.parent / ".posts" / f"{run.name}.json"
    post.parent.mkdir(parents=True)
    other = subprocess.Popen([sys.executable, "-c", FAILS_WHEN_TOLD, str(post)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    until(post.exists, 60)
    return other


def test_what_has_failed_elsewhere_is_not_tried_again(recipe, tmp_path, monkeypatch):
    other, tried = held_elsewhere(tmp_path / "runs" / "steps=2"), []

    def train_apart(recipe, run, overwrite):
        tried.append(run.folder.name)
        other.communicate()
        raise RuntimeError("no luck")

    monkeypatch.setattr(grid, "train_apart", train_apart)
    monkeypatch.setattr(grid, "POLL_SECONDS", 0.02)
    runs = runs_of(recipe, "stages.a.steps=2,3")
    assert not runs.conduct(runs.check())
    assert tried == ["steps=3"]
    assert [run["reason"] for run in json.loads((tmp_path / "runs" / "grid.json").read_text())["runs"]] == ["the disk is full", "no luck"]


def make_run(run: RunDir, recipe: Recipe, status: str = "finished") -> None:
    run.create(dump(recipe), overwrite=True)
    row = {"row": "a", "RR@10": 0.5, "train seconds": 1.0}
    run.measures.write_text(json.dumps({"recipe": "small", "variant": "v", "measures": ["RR@10"], "rows": [row]}))
    run.mark(status, "the end")


def make_run_elsewhere(run: RunDir, *made) -> None:
    """As another process of the grid does."""
    posts = run.folder.parent / ".posts"
    posts.mkdir(parents=True, exist_ok=True)
    with Post(posts / f"{run.folder.name}.json").hold("here"):
        make_run(run, *made)


def test_what_others_have_finished_since_the_grid_began_is_not_overwritten(recipe, tmp_path, monkeypatch):
    """Whether this process saw it being held or not; what lay there before is."""
    runs, trained = runs_of(recipe, "stages.a.steps=2,3,4"), []
    recipes, places = runs.check(), {name: RunDir(tmp_path / "runs" / name) for name in ("steps=2", "steps=3", "steps=4")}
    for name, run in places.items():
        make_run_elsewhere(run, recipes[name])

    def train_apart(recipe, run, overwrite):
        trained.append(run.folder.name)
        make_run(run, recipe)
        if len(trained) == 1:  # the other goes on with the next two meanwhile
            make_run_elsewhere(places["steps=3"], recipes["steps=3"])
            make_run_elsewhere(places["steps=4"], recipes["steps=4"], "stopped")

    monkeypatch.setattr(grid, "train_apart", train_apart)
    assert runs.conduct(recipes, overwrite=True)
    assert trained == ["steps=2", "steps=4"]


def test_a_run_that_is_held_when_the_grid_begins_is_not_overwritten(recipe, tmp_path, monkeypatch):
    other, trained = held_elsewhere(tmp_path / "runs" / "steps=3"), []

    def train_apart(recipe, run, overwrite):
        trained.append(run.folder.name)
        other.communicate()
        make_run(run, recipe)

    monkeypatch.setattr(grid, "train_apart", train_apart)
    runs = runs_of(recipe, "stages.a.steps=2,3")
    assert not runs.conduct(runs.check(), overwrite=True)
    assert trained == ["steps=2"] and status(tmp_path / "runs") == {"steps=2": "finished", "steps=3": "failed"}


def test_a_grid_that_names_no_recipe_needs_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="--grid: name the recipe, as in `train demo/ance --grid ...`, or recipes in the grid"):
        train.main(["--grid", "seed=1,2"])
    assert train.main(["--grid", "recipe=demo/bm25,demo/ance", "--print"]) == 0
    assert capsys.readouterr().out == "runs/grid/recipe=demo-bm25\nruns/grid/recipe=demo-ance\n"
    assert train.main(["--grid", "family-demo", "seed=42", "--print"]) == 0
    assert capsys.readouterr().out.startswith("runs/family-demo/seed=42,recipe=demo-bm25\n")
    with pytest.raises(SystemExit, match="2"):
        train.main(["seed=1"])
    assert "name a recipe, such as demo/ance, or a --grid that names recipes" in capsys.readouterr().err


def test_a_run_of_other_settings_is_neither_kept_nor_replaced(recipe, small_recipe, tmp_path):
    run = RunDir(tmp_path / "runs" / "steps=2")
    run.create(dump(small_recipe({"a": STAGE}, seed=7)))
    run.measures.write_text("{}")
    run.mark("finished", "the end")
    runs = runs_of(recipe, "stages.a.steps=2")
    assert not runs.conduct(runs.check())
    (row,) = json.loads((tmp_path / "runs" / "grid.json").read_text())["runs"]
    assert row["reason"].startswith(str(run.folder)) and "holds a run of other settings; use --overwrite" in row["reason"]


def test_a_run_directory_is_no_folder_of_a_grid_and_torchrun_none_of_its_starters(recipe, tmp_path, monkeypatch):
    RunDir(tmp_path / "runs").create("")
    with pytest.raises(FileExistsError, match="runs holds a run; the runs of a grid need another --output"):
        runs_of(recipe, "seed=1,2").check()
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ValueError, match="without torchrun"):
        runs_of(recipe, "seed=1,2").check()


def test_the_time_to_come_is_told_from_the_runs_that_were_trained(caplog):
    progress = Progress(dict.fromkeys("abcd", 0))
    with caplog.at_level("INFO"):
        progress.kept("a")
        progress.begins("b")
        progress.since -= 60
        progress.has_trained("b")
    assert caplog.messages[-1] == "grid, 2 of 4: b has finished, 60 seconds; about 2.0 minutes to come"


def test_print_lists_the_runs_and_flags_exclude_one_another(recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert train.main([str(recipe), "--grid", "seed=1,2", "stages.a.steps=5", "--print"]) == 0
    assert capsys.readouterr().out == "runs/small-grid/seed=1,steps=5\nruns/small-grid/seed=2,steps=5\n"
    with pytest.raises(SystemExit, match="2"):
        train.main([str(recipe), "--grid", "seed=1,2", "--resume"])
    assert "--grid goes on with what has stopped by itself" in capsys.readouterr().err
