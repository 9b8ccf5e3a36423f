import json
import os
import shlex
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from helpers.run_outcome import folders, outcome
from helpers.stages import ANN, LOSS, RANDOM, make_stage, recipe_file
from helpers.waiting import until

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.pipeline import experiment, model_export
from pyserini_ance.pipeline.plan import evaluation_steps, refresh_steps
from pyserini_ance.recipe.components import SettingError
from pyserini_ance.recipe.load import load
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.trainer.step_report import LossNotFinite

DEV = {"every_steps": 5, "keep_best": False}
ANCE = make_stage(ANN, steps=10, refresh={"every_steps": 4}, evaluate=DEV, save_every_steps=3)
STAGES = {"warm": make_stage(RANDOM), "ance": ANCE}


@pytest.fixture(scope="module")
def recipe(small_recipe, tmp_path_factory) -> Path:
    return recipe_file(small_recipe(STAGES), tmp_path_factory.mktemp("recipe"))


def state(folder: Path) -> dict:
    return json.loads((folder / "state.json").read_text())


def test_a_run_leaves_what_it_promises(undisturbed):
    found = outcome(undisturbed)
    promised = "recipe.yaml model index run.test.trec topics.test.json qrels.test.txt measures.json "
    promised += "metrics.jsonl report.html checkpoints negatives decisions.jsonl environment.json state.json"
    assert {*promised.split()} <= {name.partition("/")[0] for name in found["files"]}
    assert [row["row"] for row in found["rows"]] == ["untrained", "warm", "ance"]
    assert all(0 < row["R@20"] <= 1 for row in found["rows"])
    assert folders(found, "checkpoints") == ["ance-00000010", "initial-00000000", "warm-00000004"]
    assert folders(found, "negatives") == ["ance-00000000", "ance-00000004", "ance-00000008"]
    assert not any(name.startswith("scratch/") for name in found["files"])
    steps = [(r["stage"], r["step"]) for r in found["metrics"] if r["event"] == "step"]
    assert steps == [*(("warm", step) for step in range(4)), *(("ance", step) for step in range(10))]
    assert [
        (r["event"], r["step"]) for r in found["decisions"] if r["stage"] == "ance" and r["event"] != "best"
    ] == [("adopt", 0), ("adopt", 4), ("evaluate", 5), ("adopt", 8), ("evaluate", 10), ("stage_end", 10)]
    ance = load(undisturbed / "recipe.yaml").stages["ance"]
    metrics = found["metrics"]
    happened = {of: {r["step"] for r in metrics if r["event"] == of} for of in ("generation", "dev")}
    assert happened == {"generation": refresh_steps(ance), "dev": evaluation_steps(ance)}
    assert state(undisturbed)["status"] == "finished"
    assert not list(undisturbed.glob("checkpoints/*/training.safetensors"))
    assert set(json.loads((undisturbed / "index" / "encoder.json").read_text())) >= {"encoder", "weights"}


def test_device_cpu_leaves_a_gpu_alone(small_recipe, tmp_path, monkeypatch):
    """It may be full, or another process's alone."""
    touched = Mock(side_effect=AssertionError("CUDA was initialised"))
    monkeypatch.setattr(torch.cuda, "_lazy_init", touched)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(AssertionError, match="was initialised"):
        torch.cuda.current_device()
    in_batch = {"in_batch_negatives": True, "loss": LOSS}
    cached = {**STAGES["warm"], "chunk_queries": 2, "terms": {"query": in_batch}}
    live = {"query": {"negatives": [{"kind": "live", "top_k": 4}], "loss": LOSS}}
    queries_alone = {**STAGES["warm"], "trainable": "query_tower", "terms": live}
    stages = {"cached": cached, "ance": STAGES["ance"], "ltre": queries_alone}
    experiment.train(small_recipe(stages, device="cpu", precision="auto"), tmp_path / "run")
    assert state(tmp_path / "run")["status"] == "finished"
    assert load_encoder(tmp_path / "run" / "model").encode(["a text"], precision="bf16").shape[0] == 1


def test_training_warns_of_what_is_hardly_meant_as_the_plan_does(small_recipe, tmp_path, caplog):
    experiment.train(small_recipe({"warm": make_stage(RANDOM, steps=1, batch_queries=16)}), tmp_path / "run")
    assert "stages.warm.batch_queries is 16, but there are 15 training queries" in caplog.text


def test_an_encoder_that_cannot_be_exported_is_refused_before_training(small_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(model_export, "BOUND", -1.0)
    with pytest.raises(SettingError, match="wrong: sentence-transformers, from .*/initial-00000000/enc"):
        experiment.train(small_recipe({"warm": make_stage(RANDOM, steps=1)}), tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_run_without_bm25_needs_neither_pyserini_nor_java(train, undisturbed, tmp_path):
    """As docs/guides/scaling.md says."""
    train(tmp_path / "run", fault="without_pyserini_and_java")
    assert outcome(tmp_path / "run")["rows"] == outcome(undisturbed)["rows"]


def test_the_figures_are_the_same_on_a_strange_system(train, undisturbed, tmp_path):
    """No hard links, umask 077, 64 cores, and a cache of its own."""
    train(tmp_path / "run", f"cache={tmp_path}/cache", fault="a_strange_system")
    found, expected = outcome(tmp_path / "run"), outcome(undisturbed)
    assert found["rows"] == expected["rows"] and set(found["files"]) == set(expected["files"])
    assert sorted(os.listdir(tmp_path)) == ["cache", "run"] and not list(tmp_path.rglob(".*"))


def test_a_killed_run_resumes_to_bitwise_the_same(train, undisturbed, tmp_path):
    folder = tmp_path / "run"
    moments = [("kill_in_step", "4", 2), ("kill_in_tables", "ance", 4), ("kill_in_step", "10", 7)]
    moments += [("kill_in_checkpoint", "ance", 8), ("kill_in_export", "", 0)]
    died = []
    for number, (fault, stage, step) in enumerate(moments):
        train(folder, *["--resume"] * (number > 0), code=-9, fault=fault, stage=stage, step=step)
        died.append((state(folder)["status"], state(folder)["where"]))
    places = ["stage warm, step 0", *(f"stage ance, step {step}" for step in (4, 6, 6))]
    places.append("the final evaluation of stage ance")
    assert died == [("running", place) for place in places]
    refusal = train(folder, code=1)["stderr"]
    assert "holds a run that died at the final evaluation of stage ance. Continue it, or" in refusal
    train(folder, "--resume")
    assert outcome(folder) == outcome(undisturbed)


def test_a_full_disk_is_an_error_not_a_traceback_and_the_run_resumes(train, undisturbed, tmp_path):
    folder, encoder = tmp_path / "run", undisturbed / "checkpoints" / "initial-00000000" / "encoder"
    limit = (encoder / "model.safetensors").stat().st_size * 3 // 2
    moments = [
        ("small_files_only", "", limit, "stage warm, step 0", "warm-00000004 could not be written"),
        ("no_space_for_metrics", "ance", 5, "stage ance, step 5", "No space left on device"),
    ]
    for number, (fault, stage, step, where, reason) in enumerate(moments):
        done = train(folder, *["--resume"] * (number > 0), code=1, fault=fault, stage=stage, step=step)
        assert "Traceback" not in done["stderr"] and f"--output {folder} --resume" in done["stderr"]
        found = state(folder)
        assert (found["status"], found["where"]) == ("failed", where) and reason in found["reason"]
        assert "Traceback" in (folder / "error.txt").read_text()
    train(folder, "--resume")
    assert outcome(folder) == outcome(undisturbed)


def test_a_signal_saves_the_step_and_the_printed_command_continues(server, recipe, undisturbed, tmp_path):
    """Step 7 is neither saved nor refreshed nor evaluated otherwise; it waits for the signal."""
    folder = tmp_path / "a run"
    arguments = [str(recipe), "--output", str(folder)]
    pid = server.start("train", arguments, fault="wait_in_step", stage="10", step=7)
    log = folder / "metrics.jsonl"
    until(lambda: any(r["step"] == 6 for r in read_json_lines(log) if r["event"] == "step"))
    os.kill(pid, signal.SIGINT)
    done = server.wait(pid, code=130)
    assert state(folder)["where"] == "stage ance, step 7"
    assert (folder / "checkpoints" / "ance-00000007" / "training.safetensors").exists()
    told = [line for line in done["stderr"].splitlines() if "continue" in line]
    [command] = [line.partition("continue with: ")[2] for line in told]
    program, name, *arguments = shlex.split(command)
    assert (program, name) == ("pyserini-ance", "train")
    server.run("train", arguments, fault="kill_in_step", stage="10", step=6)  # no step before is repeated
    assert outcome(folder) == outcome(undisturbed)


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        (SettingError("Lower it."), "change the recipe and start again with: --output '{}' --over"),
        (LossNotFinite("no"), "change the recipe and start again with: --output '{}' --overwrite"),
        (RuntimeError("no"), "continue with: pyserini-ance train '{0}/recipe.yaml' --output '{0}' --resume"),
    ],
)
def test_the_advice_fits_the_error(small_recipe, tmp_path, caplog, error, cure):
    run = experiment.Experiment(small_recipe(STAGES), tmp_path / "a run", World())
    run.run_dir.create("")
    with pytest.raises(type(error)), run.run_dir.trainer.held("stage warm, step 3"), run.advising():
        raise error
    assert f"failed at stage warm, step 3; {cure.format(tmp_path / 'a run')}" in caplog.messages[-1]
    recorded = state(run.run_dir.folder)
    assert (recorded["status"], recorded["where"]) == ("failed", "stage warm, step 3")
