import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.run_outcome import outcome, without_times
from helpers.stages import changed, recipe_file
from safetensors.numpy import load_file

from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.storage.files import read_json_lines

pytestmark = pytest.mark.long
NAMES = ("train_together", "train_and_refresh", "written_by_others")
TRAIN, BOTH, WRITTEN = (f"helpers/process_functions.py:{name}" for name in NAMES)
# Seconds in which a process must have heard of another's end, on a machine of any load.
# A quiet one needs one.
SOON = 20
OPTIMIZER = {"learning_rate": 1e-3}
LARGE_EPS = ("large_eps", "", 0)
OWN = {"query": {"negatives": [{"kind": "ann", "top_k": 8}], "loss": {"kind": "nll", "scale": 0.1}}}
STEP = {"query": {**OWN["query"], "in_batch_negatives": True, "num_hardest": 3}}
STAGE = {"steps": 9, "batch_queries": 5, "chunk_queries": 2, "optimizer": OPTIMIZER}
STAGE["refresh"] = {"every_steps": 5}
INLINE = {"own": {**STAGE, "terms": OWN, "save_every_steps": 3}}
INLINE["step"] = {**STAGE, "terms": STEP, "evaluate": {"every_steps": 3, "sample_documents": 20}}
BACKGROUND = {"ance": {**STAGE, "terms": OWN, "evaluate": {"every_steps": 4, "keep_best": False}}}
BACKGROUND["ance"]["refresh"] = {"every_steps": 3, "mode": "async", "adopt": 2}


@pytest.fixture(scope="module")
def recipe(small_recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")

    def write(stages: dict, dropout: float | None = None, **more) -> Path:
        set_dropout = "encoder.dropout=" + ("null" if dropout is None else str(dropout))
        made = changed(small_recipe(stages, **more), set_dropout)
        return recipe_file(made, folder, str(len(list(folder.iterdir()))))

    return write


@pytest.fixture(scope="module")
def train(run_processes):
    """`train(size, recipe, folder, *flags, fault=, ranks=)`: how each process ended."""

    def run(size: int, recipe: Path, folder: Path, *flags: str, **fault) -> list[dict]:
        arguments = [str(recipe), "--output", str(folder), *flags]
        return run_processes.ends(size, TRAIN, arguments, *fault.values(), join=False)

    return run


@pytest.fixture(scope="module")
def both(run_processes):
    """A trainer and a refresher of `size` processes each; how all ended, the trainer's first."""

    def run(size: int, recipe: Path, folder: Path, *flags: str, **fault) -> list[dict]:
        arguments = [str(recipe), "--output", str(folder)]
        given = [*arguments, *flags], arguments, *fault.values()
        return run_processes.ends(2 * size, BOTH, *given, join=False)

    return run


def codes(ends: list[dict]) -> list[int]:
    return [end["code"] for end in ends]


def succeeded(ends: list[dict]) -> None:
    assert not any(codes(ends)), "\n".join(f"{end['code']} {end['error']}\n{end['output']}" for end in ends)


def state(folder: Path, post: str = "state") -> tuple[str, str]:
    found = json.loads((folder / f"{post}.json").read_text())
    return found["status"], found.get("reason", "")


def decisions(folder: Path) -> list[dict]:
    """Without what rounding changes: the hashes of weights, and the last digits of values."""
    taken = [r for r in read_json_lines(folder / "decisions.jsonl") if r["event"] != "resume"]
    records = [{k: v for k, v in r.items() if k != "weights"} for r in taken]
    return [{**r, "value": pytest.approx(r["value"], rel=1e-5)} if "value" in r else r for r in records]


def steps(folder: Path) -> list[dict]:
    return [without_times(r) for r in read_json_lines(folder / "metrics.jsonl") if r["event"] == "step"]


def same_but_for_rounding(one: Path, two: Path) -> None:
    """Decisions, tables and measures are equal, losses to 1e-5, weights to 1e-6, and to 1e-4 of what training
    has changed in them.

    The norm of the gradients, which the weights' differences tell on most: to 1e-4.
    """
    assert decisions(one) == decisions(two)
    for first, second in zip(steps(one), steps(two), strict=True):
        close = {name: pytest.approx(second[name], rel=1e-5) for name in ("loss", "terms")}
        assert first == {**second, **close, "grad_norm": pytest.approx(second["grad_norm"], rel=1e-4)}
    for folder in (one / "negatives").iterdir():
        tables = [NegativeTable.load(run / "negatives" / folder.name / "query.0") for run in (one, two)]
        assert np.array_equal(tables[0].candidates, tables[1].candidates)
    written = [json.loads((run / "measures.json").read_text())["rows"] for run in (one, two)]
    rows = [[without_times(row) for row in of_run] for of_run in written]
    assert rows[0] == rows[1]
    folders = one / "model", two / "model", one / "checkpoints" / "initial-00000000" / "encoder"
    weights, others, before = map(all_weights, folders)
    difference = np.linalg.norm(weights - others)
    assert difference < 1e-6 * np.linalg.norm(weights)
    assert difference < 1e-4 * np.linalg.norm(weights - before)


def all_weights(encoder: Path) -> np.ndarray:
    tensors = load_file(encoder / "model.safetensors")
    return np.concatenate([tensor.ravel().astype(np.float64) for _, tensor in sorted(tensors.items())])


def test_two_processes_do_what_one_does(train, recipe, tiny_bert, tmp_path):
    lengths = {side: {"length_tokens": 32} for side in ("query", "document")}
    teacher = {"model": str(tiny_bert), "pooling": "mean", "tokenization": lengths}
    teacher = {"kind": "encoder", "encoder": teacher}
    terms = {**STEP, "vectors": {"loss": {"kind": "embed_distill"}, "teacher": teacher}}
    still = recipe({**INLINE, "step": {**INLINE["step"], "terms": terms}}, dropout=0.0)
    for size in (1, 2):
        succeeded(train(size, still, tmp_path / str(size), fault=LARGE_EPS, ranks=(0, 1)))
    same_but_for_rounding(tmp_path / "1", tmp_path / "2")
    # One may hear of the other's death before it comes to its own.
    killed = train(2, still, tmp_path / "both", fault=("kill_in_step_with_large_eps", "9", 5), ranks=(0, 1))
    assert sorted(codes(killed)) in ([-9, -9], [-9, 1])
    succeeded(train(1, still, tmp_path / "both", "--resume", fault=LARGE_EPS, ranks=(0,)))
    same_but_for_rounding(tmp_path / "1", tmp_path / "both")


def test_two_processes_with_a_refresher_of_two_do_what_one_does_with_one(both, recipe, tmp_path):
    still = recipe(BACKGROUND, dropout=0.0, refresher="external")
    for size in (1, 2):
        succeeded(both(size, still, tmp_path / str(size), fault=LARGE_EPS, ranks=(0, 1, 2, 3)))
    same_but_for_rounding(tmp_path / "1", tmp_path / "2")


@pytest.fixture(scope="module")
def inline(recipe) -> Path:
    return recipe(INLINE)


@pytest.fixture(scope="module")
def undisturbed(run_processes, inline, tmp_path_factory) -> tuple[Path, list[str]]:
    """A run of two processes, and what the second has written in its folder."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    written = run_processes(2, WRITTEN, str(folder), [str(inline), "--output", str(folder)], join=False)
    return folder, written[1]


def test_the_second_process_writes_nothing_but_its_vectors(undisturbed):
    own = re.compile(r"/scratch/[^/]+(/[^/.]+(/\.?1-of-2.*)?)?")  # its store, in a folder that may be there
    others = [path for path in undisturbed[1] if not own.fullmatch(path)]
    assert undisturbed[1] and not others


def test_whatever_ends_one_process_ends_both_and_the_next_two_go_on(train, inline, undisturbed, tmp_path):
    """One run that is ended six times; in the end it is bitwise the one that was left in peace."""
    run = tmp_path / "run"

    def ended(flag: str, *fault: str | int, ranks: tuple[int, ...]) -> list[dict]:
        ends = train(2, inline, run, *filter(None, [flag]), fault=fault, ranks=ranks)
        assert abs(ends[0]["seconds"] - ends[1]["seconds"]) < SOON, ends
        return ends

    assert sorted(codes(ended("", "kill_in_step", "9", 2, ranks=(0, 1)))) in ([-9, -9], [-9, 1])

    first, second = ended("--resume", "kill_in_step", "9", 5, ranks=(1,))
    assert (first["code"], second["code"]) == (1, -9)
    status, reason = state(run)
    assert status == "failed" and reason.startswith("process 0 of 2 lost the others (")
    assert f"error: {reason}" in first["output"]

    first, second = ended("--resume", "kill_in_step", "9", 5, ranks=(0,))
    assert (first["code"], second["code"]) == (-9, 1)
    assert state(run)[0] == "running"  # nobody else writes there; that the process is dead is seen

    first, second = ended("--resume", "small_files_only", "", 1500, ranks=(1,))
    assert (first["code"], second["code"]) == (1, 1)
    assert state(run)[0] == "failed" and "error: [Errno 27] File too large" in second["output"]

    assert codes(ended("--resume", "kill_in_checkpoint", "step", 3, ranks=(0,))) == [-9, 1]

    ends = ended("--resume", "terminate_in_step", "9", 4, ranks=(0, 1))
    assert codes(ends) == [130, 130] and state(run) == ("stopped", "KeyboardInterrupt")
    assert json.loads((run / "state.json").read_text())["where"] == "stage step, step 4"
    assert [end["output"].count("interrupted") for end in ends] == [1, 0]

    succeeded(train(2, inline, run, "--resume"))
    assert outcome(run) == outcome(undisturbed[0])


@pytest.fixture(scope="module")
def under_torchrun(recipe, forked_python, tmp_path_factory) -> tuple[Path, str]:
    """A run that torchrun has started, with a refresher of its own, and what it has printed. Workers are
    forked; torchrun puts -u before their arguments.
    """
    run = tmp_path_factory.mktemp("torchrun") / "run"
    python = run.parent / "python"
    python.write_text(f'#!/bin/sh\nshift\nexec {shlex.join(forked_python)} "$@"\n')
    python.chmod(0o755)
    launcher = "-m torch.distributed.run --standalone --nproc-per-node 2 -m pyserini_ance.train"
    command = [sys.executable, *launcher.split()]
    arguments = [str(recipe(BACKGROUND)), "--output", str(run)]
    forked = {**os.environ, "PYTHON_EXEC": str(python)}
    done = subprocess.run([*command, *arguments], env=forked, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return run, done.stdout


def test_under_torchrun_one_process_speaks(under_torchrun):
    run, printed = under_torchrun
    assert printed.count("| ance ") == 1 and printed.count("search with it:") == 1
    assert (run / "refresher.log").read_text().count("the refresher exits: the run has finished") == 1
    assert json.loads((run / "environment.json").read_text())["machine"]["processes"] == 2


def test_a_refresher_that_loses_a_process_says_so_and_can_start_again(both, recipe, under_torchrun, tmp_path):
    background, run = recipe(BACKGROUND, refresher="external"), tmp_path / "run"
    ends = both(2, background, run, fault=("kill_in_mining", "ance", 3), ranks=(3,))
    assert codes(ends) == [1, 1, 1, -9]
    status, reason = state(run, "refresher")
    assert status == "failed" and reason.startswith("process 0 of 2 lost the others (")
    assert f"the refresher has failed: {reason}" in ends[0]["output"]
    succeeded(both(2, background, run, "--resume"))
    expected = outcome(under_torchrun[0])
    del expected["files"]["refresher.log"]
    assert outcome(run) == expected
