"""Whole runs of the train command in processes of their own: undisturbed, killed, interrupted, and on a full
disk.
"""

import json
import os
import shlex
import signal
from pathlib import Path

import pytest
import torch
from helpers.run_outcome import folders, outcome
from helpers.stages import ANN, LOSS, RANDOM, make_stage
from helpers.waiting import until

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.pipeline import experiment
from pyserini_ance.pipeline.final_evaluator import FinalEvaluator
from pyserini_ance.pipeline.model_export import write_qrels
from pyserini_ance.pipeline.plan import evaluation_steps, refresh_steps
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.pyserini_bridge import bm25
from pyserini_ance.recipe.components import SettingError
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.storage.publish import publishing
from pyserini_ance.trainer.step_report import LossNotFinite

DEV = {"every_steps": 5, "keep_best": False}
STAGES = {
    "warm": make_stage(RANDOM),
    "ance": make_stage(ANN, steps=10, refresh={"every_steps": 4}, evaluate=DEV, save_every_steps=3),
}


@pytest.fixture(scope="module")
def recipe(small_recipe, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "small.yaml"
    path.write_text(dump(small_recipe(STAGES)))
    return path


def state(folder: Path) -> dict:
    return json.loads((folder / "state.json").read_text())


def seconds(folder: Path) -> dict:
    return json.loads((folder / "measures.json").read_text())["seconds"]


@pytest.mark.core
def test_a_run_leaves_what_it_promises(undisturbed):
    found = outcome(undisturbed)
    promised = "recipe.yaml model index run.test.trec topics.test.tsv qrels.test.txt measures.json "
    promised += "metrics.jsonl report.html checkpoints negatives decisions.jsonl environment.json state.json"
    assert {*promised.split()} <= {name.partition("/")[0] for name in found["files"]}
    assert [row["row"] for row in found["rows"]] == ["untrained", "warm", "ance"]
    assert all(0 < row["R@20"] <= 1 for row in found["rows"])
    assert folders(found, "checkpoints") == ["ance-00000010", "initial-00000000", "warm-00000004"]
    generations = folders(found, "negatives")
    assert generations == ["ance-00000000", "ance-00000004", "ance-00000008"]
    assert not any(name.startswith("scratch/") for name in found["files"])
    assert [(r["stage"], r["step"]) for r in found["metrics"] if r["event"] == "step"] == [
        *(("warm", step) for step in range(4)),
        *(("ance", step) for step in range(10)),
    ]
    assert [
        (r["event"], r["step"]) for r in found["decisions"] if r["stage"] == "ance" and r["event"] != "best"
    ] == [("adopt", 0), ("adopt", 4), ("evaluate", 5), ("adopt", 8), ("evaluate", 10), ("stage_end", 10)]
    ance = load(undisturbed / "recipe.yaml").recipe.stages["ance"]
    happened = {
        event: {r["step"] for r in found["metrics"] if r["event"] == event} for event in ("generation", "dev")
    }
    assert happened == {"generation": refresh_steps(ance), "dev": evaluation_steps(ance)}
    assert state(undisturbed)["status"] == "finished"
    assert not list(undisturbed.glob("checkpoints/*/training.safetensors"))
    assert set(json.loads((undisturbed / "index" / "encoder.json").read_text())) >= {"encoder", "weights"}


def test_device_cpu_leaves_a_gpu_alone(small_recipe, tmp_path, monkeypatch):
    """It may be full, or another process's alone."""

    def touched():
        raise AssertionError("CUDA was initialised")

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


def test_moments_stay_until_no_stage_goes_on_with_them(small_recipe, tmp_path):
    keeping = {**STAGES["warm"], "init_from": "previous", "keep_optimizer": True}
    elsewhere = {**keeping, "init_from": {"stage": "a"}}
    stages = {"a": STAGES["warm"], "b": keeping, "c": elsewhere, "d": STAGES["warm"]}
    made = experiment.Experiment(small_recipe(stages), tmp_path / "run", World())
    for name in stages:
        with publishing(made.run_dir.checkpoint(name, 4), {}) as folder:
            (folder / "training.safetensors").touch()

    def left_after(*finished: str) -> str:
        made._drop_moments(finished)
        return "".join(
            sorted(path.parent.name[0] for path in tmp_path.glob("run/checkpoints/*/*.safetensors"))
        )

    assert [left_after(*"abcd"[:count]) for count in range(1, 5)] == ["abcd", "acd", "d", ""]


def test_a_run_without_bm25_needs_neither_pyserini_nor_java(train, undisturbed, tmp_path):
    """As docs/guides/scaling.md says."""
    done = train(tmp_path / "run", fault="without_pyserini_and_java")
    assert done["code"] == 0, done["stderr"]
    assert outcome(tmp_path / "run")["rows"] == outcome(undisturbed)["rows"]


def test_rm3_is_a_row_of_its_own_and_ranks_nothing_to_train_on(small_recipe, tmp_path, monkeypatch):
    """RM3 finds what BM25 does not. One call makes all rankings; its seconds are in BM25's row."""
    asked = []

    def retrieve(documents, rankings, *rest) -> None:
        asked.extend(rankings)
        for one in rankings:
            one.output.parent.mkdir(parents=True, exist_ok=True)
            one.output.write_text(
                "".join(f"test-{n} Q0 {'red-horse' if one.rm3 else 'red-apple'} 1 1.0 t\n" for n in range(5))
            )

    monkeypatch.setattr(bm25, "retrieve", retrieve)
    one = make_stage({"kind": "bm25"}, steps=1, batch_queries=2)
    made = experiment.Experiment(small_recipe({"a": one}, bm25={"rm3": {}}), tmp_path, World())
    data = tokenize(made.recipe, read_collection(made.recipe))
    write_qrels(data.collection, "test", made.run_dir.qrels("test"))
    rows = made._bm25(data, FinalEvaluator(made.recipe, data, made.run_dir, World()))
    assert [(row["row"], row["R@20"]) for row in rows] == [("bm25", 0.0), ("bm25+rm3", 0.2)]
    assert rows[0]["test seconds"] >= 0 and rows[1]["test seconds"] is None
    assert [(one.queries[0][0], one.hits, one.rm3) for one in asked] == [
        ("train-0", 200, False),
        ("test-0", 20, False),
        ("test-0", 20, True),
    ]


@pytest.mark.core
def test_a_killed_run_resumes_to_bitwise_the_same(train, undisturbed, tmp_path):
    """One run killed at six moments, each time taken up by the next process."""
    folder = tmp_path / "run"
    moments = [
        ("kill_in_step", "4", 2),
        ("kill_in_step", "10", 1),
        ("kill_in_tables", "ance", 4),
        ("kill_in_step", "10", 7),
    ]
    moments += [("kill_in_checkpoint", "ance", 8), ("kill_in_export", "", 0)]
    died = []
    for number, (fault, stage, step) in enumerate(moments):
        done = train(folder, *["--resume"] * (number > 0), fault=fault, stage=stage, step=step)
        assert done["code"] == -9, (fault, done)
        died.append((state(folder)["status"], state(folder)["where"]))
    assert died == [
        ("running", "stage warm, step 0"),
        ("running", "stage ance, step 0"),
        ("running", "stage ance, step 4"),
        ("running", "stage ance, step 6"),
        ("running", "stage ance, step 6"),
        ("running", "the final evaluation of stage ance"),
    ]
    assert list(seconds(undisturbed)) == ["data and tokens", "everything"]
    refused = train(folder)
    assert (
        refused["code"] == 1
        and "holds a run that died at the final evaluation of stage ance. Continue it, or repeat"
        in refused["stderr"]
    )
    done = train(folder, "--resume")
    assert done["code"] == 0, done["stderr"]
    assert outcome(folder) == outcome(undisturbed) and list(seconds(folder)) == [
        "data and tokens",
        "everything since --resume",
    ]


def test_an_interrupted_run_says_where_it_stopped_and_resumes(train, undisturbed, tmp_path):
    """One run that meets a full disk twice, Ctrl-C and SIGTERM; a full disk is an error, not a traceback."""
    folder = tmp_path / "run"
    weights = (
        (undisturbed / "checkpoints" / "initial-00000000" / "encoder" / "model.safetensors").stat().st_size
    )
    moments = [
        (
            ("small_files_only", "", weights * 3 // 2),
            1,
            "failed",
            "stage warm, step 0",
            "warm-00000004 could not be written",
        ),
        (("interrupt_in_step", "10", 1), 130, "stopped", "stage ance, step 1", "KeyboardInterrupt"),
        (("no_space_for_metrics", "ance", 5), 1, "failed", "stage ance, step 5", "No space left on device"),
        (("terminate_in_step", "10", 9), 130, "stopped", "stage ance, step 9", "KeyboardInterrupt"),
    ]
    for number, ((fault, stage, step), code, status, where, reason) in enumerate(moments):
        done = train(folder, *["--resume"] * (number > 0), fault=fault, stage=stage, step=step)
        assert done["code"] == code, (fault, done)
        assert "Traceback" not in done["stderr"] and f"--output {folder} --resume" in done["stderr"]
        found = state(folder)
        assert (found["status"], found["where"]) == (status, where) and reason in found["reason"]
        assert "Traceback" in (folder / "error.txt").read_text()
    done = train(folder, "--resume")
    assert done["code"] == 0, done["stderr"]
    assert outcome(folder) == outcome(undisturbed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_step_reached_and_the_printed_command_continues_there(
    server, recipe, undisturbed, tmp_path, number
):
    """Step 7 is neither saved nor refreshed nor evaluated otherwise; it waits for the signal."""
    folder = tmp_path / "a run"
    arguments = [str(recipe), "--output", str(folder)]
    pid = server.start("train", arguments, fault="wait_in_step", stage="10", step=7)
    until(
        lambda: any(r["step"] == 6 for r in read_json_lines(folder / "metrics.jsonl") if r["event"] == "step")
    )
    os.kill(pid, number)
    done = server.wait(pid)
    assert done["code"] == 130 and state(folder)["where"] == "stage ance, step 7"
    assert (folder / "checkpoints" / "ance-00000007" / "training.safetensors").exists()
    [command] = [
        line.partition("continue with: ")[2] for line in done["stderr"].splitlines() if "continue" in line
    ]
    program, name, *arguments = shlex.split(command)
    assert (program, name) == ("pyserini-ance", "train")
    done = server.run("train", arguments, fault="kill_in_step", stage="10", step=6)
    assert done["code"] == 0, "a step before the interruption was repeated"
    assert outcome(folder) == outcome(undisturbed)


def test_a_folder_that_becomes_read_only_is_an_error_and_the_state_before_it_stays(
    train, undisturbed, tmp_path
):
    folder = tmp_path / "run"
    done = train(folder, fault="read_only_from", stage="10", step=5)
    assert done["code"] == 1 and "Traceback" not in done["stderr"]
    assert "Read-only file system" in done["stderr"] and f"{folder}/metrics.jsonl" in done["stderr"]
    assert f"cannot record the end of the run in {folder}/state.json" in done["stderr"]
    assert (state(folder)["status"], state(folder)["where"]) == ("running", "stage ance, step 5")
    done = train(folder, "--resume")
    assert done["code"] == 0, done["stderr"]
    assert outcome(folder) == outcome(undisturbed)


@pytest.mark.parametrize(
    ("error", "spoil", "cure"),
    [
        (SettingError("Lower it."), None, "change the recipe and start again with: --output {} --over"),
        (LossNotFinite("no"), None, "change the recipe and start again with: --output {} --overwrite"),
        (
            RuntimeError("no GPU"),
            None,
            "continue with: pyserini-ance train {0}/recipe.yaml --output {0} --resume",
        ),
        # An unreadable state does not hide the cause.
        (RuntimeError("no GPU"), lambda path: path.write_text("{"), "continue with: "),
        (RuntimeError("no GPU"), lambda path: path.unlink() or path.mkdir(), "continue with: "),
    ],
)
def test_the_advice_fits_the_error(small_recipe, tmp_path, caplog, error, spoil, cure):
    run = experiment.Experiment(small_recipe(STAGES), tmp_path / "run", World())
    run.run_dir.create("")
    run.run_dir.mark("running", "stage warm, step 3")
    with pytest.raises(type(error)), run.session.recording_the_end():
        if spoil:
            spoil(run.run_dir.state)
        raise error
    assert f"failed at stage warm, step 3; {cure.format(tmp_path / 'run')}" in caplog.messages[-1]
    if run.run_dir.state.is_file():
        recorded = state(run.run_dir.folder)
        assert (recorded["status"], recorded["where"]) == ("failed", "stage warm, step 3")
