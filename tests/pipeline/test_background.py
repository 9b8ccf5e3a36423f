import os
from pathlib import Path

import pytest
from helpers.processes import CommandServer
from helpers.run_outcome import outcome
from helpers.stages import ANN, make_stage, recipe_file
from helpers.waiting import until
from pipeline.fault_injection import strike, write_recipe

from pyserini_ance.storage.files import read_json_lines

LATE = {"every_steps": 6, "mode": "async", "adopt": 4}
STAGE = make_stage(ANN, steps=30, refresh=LATE, evaluate={"every_steps": 10})
READY = {"every_steps": 6, "mode": "async", "adopt": "when_ready"}


class Runs:
    def __init__(self, server: CommandServer, small_recipe, folder: Path):
        self.server, self.small_recipe, self.folder = server, small_recipe, folder

    def recipe(self, refresher: str = "external", **stage) -> Path:
        made = self.small_recipe({"ance": {**STAGE, **stage}}, refresher=refresher)
        return recipe_file(made, self.folder, str(len(list(self.folder.glob("*.yaml")))))

    def start(self, command: str, recipe: Path, run: Path, *flags: str, **fault) -> int:
        return self.server.start(command, [str(recipe), "--output", str(run), *flags], **fault)

    def both(self, recipe: Path, run: Path, *flags: str, **fault) -> tuple[dict, dict]:
        """How the trainer, which must succeed, and the refresher ended."""
        refresher = self.start("refresh", recipe, run, **fault)
        trainer = self.start("train", recipe, run, *flags)
        return self.server.wait(trainer, code=0), self.server.wait(refresher)


@pytest.fixture
def runs(server, small_recipe, tmp_path) -> Runs:
    return Runs(server, small_recipe, tmp_path)


@pytest.fixture(scope="module")
def undisturbed(server, small_recipe, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    runs = Runs(server, small_recipe, folder)
    _, refresher = runs.both(runs.recipe(), folder / "run")
    assert refresher["code"] == 0, refresher["stderr"]
    return folder / "run"


def records(run: Path, event: str, file: str = "metrics.jsonl") -> list[dict]:
    return [record for record in read_json_lines(run / file) if record["event"] == event]


def test_adoptions_are_exactly_so_many_steps_late(undisturbed):
    adopted = [(r["step"], r["checkpoint_step"]) for r in records(undisturbed, "adopt", "decisions.jsonl")]
    assert adopted == [(0, 0), (10, 6), (16, 12), (22, 18), (28, 24)]
    evaluated = records(undisturbed, "evaluate", "decisions.jsonl")
    assert [(r["step"], r["checkpoint_step"]) for r in evaluated] == [(0, 0), (14, 10), (24, 20), (30, 30)]
    generations = records(undisturbed, "generation")
    assert [r["age_steps"] for r in generations] == [0, 4, 4, 4, 4]
    assert all(r["waited_seconds"] >= 0 for r in generations)


def test_a_run_that_depends_on_time_resumes_with_what_it_took_and_is_replayed(runs, tiny_bert, tmp_path):
    lengths = {side: {"length_tokens": 32} for side in ("query", "document")}
    teacher = {"kind": "encoder", "encoder": {"model": str(tiny_bert), "tokenization": lengths}}
    terms = {**STAGE["terms"], "vectors": {"loss": {"kind": "embed_distill"}, "teacher": teacher}}
    recipe, run = runs.recipe(refresh=READY, save_every_steps=50, terms=terms), tmp_path / "run"
    refresher = runs.start("refresh", recipe, run, fault="slow_refresher")
    trainer = runs.start("train", recipe, run)
    until(lambda: len(records(run, "adopt", "decisions.jsonl")) > 1, seconds=200)
    runs.server.kill(trainer)
    before = records(run, "adopt", "decisions.jsonl")
    runs.server.wait(runs.start("train", recipe, run, "--resume"), code=0)
    runs.server.wait(refresher)
    adopted = records(run, "adopt", "decisions.jsonl")
    assert adopted[: len(before)] == before and len(adopted) > len(before)
    assert [r["checkpoint_step"] for r in adopted] == sorted({r["checkpoint_step"] for r in adopted})
    assert all(r["step"] - r["checkpoint_step"] <= 14 for r in adopted)
    assert any(r["step"] - r["checkpoint_step"] not in (0, 14) for r in adopted)
    assert [r["step"] for r in records(run, "step")] == list(range(30))

    trainer, _ = runs.both(recipe, tmp_path / "again", "--replay", str(run / "decisions.jsonl"))
    assert "differ from the recorded run's" not in trainer["stderr"]
    assert records(tmp_path / "again", "adopt", "decisions.jsonl") == adopted
    one, other = outcome(run), outcome(tmp_path / "again")
    assert other["files"].pop("replay.jsonl")
    # How much of a table is new depends on the tables that were made, also for nothing, before it.
    for found in (one, other):  # a decision that was taken before the kill precedes earlier steps in the file
        found["decisions"].sort(key=lambda record: (record["step"], record["event"]))
    compared = ("rows", "decisions", "evaluations", "files")
    assert {key: one[key] for key in compared} == {key: other[key] for key in compared}


def test_a_stage_that_mines_nothing_is_measured_in_the_background(runs, tmp_path):
    terms = {"query": {"negatives": [{"kind": "random"}], "loss": {"kind": "nll", "scale": 0.1}}}
    evaluate = {"every_steps": 3, "mode": "async", "adopt": 2}
    recipe = runs.recipe(terms=terms, refresh=None, evaluate=evaluate, steps=18)
    runs.both(recipe, tmp_path / "run")
    taken = records(tmp_path / "run", "evaluate", "decisions.jsonl")
    at_the_end = (18, 18)
    lagged = [(of + 2, of) for of in range(3, 18, 3)]
    assert [(r["step"], r["checkpoint_step"]) for r in taken] == [(0, 0), *lagged, at_the_end]
    scores = {r["checkpoint_step"]: r["value"] for r in taken}
    best = max(scores, key=lambda step: (scores[step], -step))
    assert records(tmp_path / "run", "best", "decisions.jsonl")[-1]["checkpoint_step"] == best
    assert records(tmp_path / "run", "stage_end", "decisions.jsonl")[0]["result"] == f"ance-{best:08d}"
    assert not (tmp_path / "run" / "negatives").exists()


def test_kills_change_nothing(server, tmp_path):
    seed = int(os.environ.get("FAULT_SEED", "1"))
    struck = strike(server, tmp_path, write_recipe(tmp_path, "corrected"), kills=6, seed=seed)
    assert struck.kills >= 6 and struck.finished
