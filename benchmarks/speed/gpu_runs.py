"""Rows of `bench --gpu`: trainer and refresher on one device, a whole run."""

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.speed.gpu_bench import Bench, NotMeasured
from benchmarks.speed.gpu_inputs import Model, stage_trainer, training_data
from benchmarks.speed.gpu_training import STEPS, step_stage
from benchmarks.speed.training import SCALE, LastRound
from pyserini_ance.encoders.hardware import resolve_precision
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.storage.files import read_json, read_json_lines
from pyserini_ance.trainer.callbacks import TrainerCallback

WARM_UP = 4  # steps
END_SECONDS = 60  # for a run to save its state


class Window:
    """Counts work in windows of time that another process opens."""

    def __init__(self, connection: Connection):
        self._connection = connection

    def open(self) -> None:
        """Wait for the next window. Raises LastRound if there is none."""
        self._connection.send("ready")
        if not (seconds := self._connection.recv()):
            raise LastRound
        self._count, self._start, self._seconds = 0, time.perf_counter(), seconds

    def done(self, count: int) -> None:
        """Report the work per second at the end of the window, and wait for the next one."""
        self._count += count
        if (seconds := time.perf_counter() - self._start) >= self._seconds:
            self._connection.send(self._count / seconds)
            self.open()


def share(bench: Bench) -> None:
    """Steps and texts a second of two processes: each alone, then both."""
    bench.row("8 x (1+7) steps beside encoding", "ours", partial(_shared, bench))


def _shared(bench: Bench) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    arguments = (bench.model, bench.sizes.texts, bench.folder, bench.device)
    ends, processes = [], []
    try:
        for work in (_train_in_windows, _encode_in_windows):
            end, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, *arguments), daemon=True)
            process.start()
            theirs.close()
            ends.append(end)
            processes.append(process)
        for end in ends:
            _receive(end, bench.left())
        alone = [_rates([end], bench.sizes.seconds)[0] for end in ends]
        both = _rates(ends, bench.sizes.seconds)
        for end in ends:
            end.send(None)
    finally:
        for process in processes:
            process.join(5)
            process.kill()
            process.join()
    return {
        "steps/s alone": alone[0],
        "steps/s together": both[0],
        "training takes": f"{alone[0] / both[0]:.2f} times as long",
        "texts/s alone": alone[1],
        "texts/s together": both[1],
        "encoding takes": f"{alone[1] / both[1]:.2f} times as long",
    }


def _receive(end: Connection, seconds: float) -> Any:
    if not end.poll(max(1.0, seconds)):
        raise NotMeasured("the processes did not start in time")
    return end.recv()


def _rates(ends: list[Connection], seconds: float) -> list[float]:
    for end in ends:
        end.send(seconds)
    rates: list[float] = [_receive(end, 60 + 10 * seconds) for end in ends]
    for end in ends:
        _receive(end, 60)
    return rates


def _train_in_windows(connection: Connection, model: Model, texts: int, folder: Path, device: str) -> None:
    window = Window(connection)

    class Steps(TrainerCallback):
        def on_step_end(
            self, stage: str, step: int, losses: dict[str, float], metrics: dict[str, Any]
        ) -> None:
            if step == WARM_UP:
                window.open()
            elif step > WARM_UP:
                window.done(1)

    queries, negatives, settings = STEPS["8 x (1+7)"]
    stage, data = step_stage(queries, negatives, **settings), training_data(model, texts)
    with suppress(LastRound):
        stage_trainer(model, data, folder / "shared", stage, device, callbacks=(Steps(),)).train()


def _encode_in_windows(connection: Connection, model: Model, texts: int, folder: Path, device: str) -> None:
    window, encoder = Window(connection), load_encoder(model.folder, device)
    data = training_data(model, texts)
    precision: Any = resolve_precision("auto", device)

    def batches() -> Iterator[int]:
        while True:
            for rows, _ in encoder.encode_rows(data.documents, np.arange(texts), "document", precision, None):
                yield len(rows)

    with suppress(LastRound):
        work = batches()
        next(work)
        window.open()
        for count in work:
            window.done(count)


def run(bench: Bench) -> None:
    """`train` of a recipe with ANCE's negatives, mined by a refresher on the same device."""
    data, weights = bench.data, bench.weights
    task = f"{data.name if data else 'medquad'}, {bench.run_steps:,} steps"
    bench.row(task, weights.name if weights else "MiniLM", partial(_whole_run, bench, data, weights))


def _whole_run(bench: Bench, data: Path | None, weights: Path | None) -> dict[str, Any]:
    if data is None or weights is None:
        raise NotMeasured("name its folders by --data and --weights")
    folder, steps = bench.folder / "run", bench.run_steps
    settings = _run_settings(bench, data.absolute(), weights.absolute())
    recipe = bench.folder / "run.yaml"
    recipe.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
    command = [sys.executable, "-m", "pyserini_ance", "train", str(recipe), "--output", str(folder)]
    paths = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    start = time.perf_counter()
    if not _ended(command, {**os.environ, "PYTHONPATH": paths}, max(10.0, bench.left())):
        done = [each for each in read_json_lines(folder / "metrics.jsonl") if each["event"] == "step"]
        raise NotMeasured(f"the time was over at step {len(done):,} of {steps:,}")
    seconds = time.perf_counter() - start
    metrics = read_json_lines(folder / "metrics.jsonl")
    refreshes = [each["seconds"] for each in metrics if each["event"] == "generation"]
    rows = read_json(folder / "measures.json")["rows"]
    return {
        "s": seconds,
        "ms a step": 1000 * statistics.median(each["seconds"] for each in metrics if each["event"] == "step"),
        "refreshes": len(refreshes),
        "s a refresh": statistics.median(sum(each.values()) for each in refreshes),
        **{f"nDCG@10 {row['row']}": float(row["nDCG@10"]) for row in rows},
    }


def _ended(command: list[str], environment: dict[str, str], seconds: float) -> bool:
    """Whether the command ended within so many seconds. Raises RuntimeError with its last words if it failed.

    Else it is terminated, so that it ends its refresher.
    """
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            said = process.communicate(timeout=seconds)[1]
        except subprocess.TimeoutExpired:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=END_SECONDS)
            process.kill()
            return False
    if process.returncode:
        raise RuntimeError((said.strip().splitlines() or ["no message"])[-1])
    return True


def _run_settings(bench: Bench, data: Path, weights: Path) -> dict[str, Any]:
    steps = bench.run_steps
    splits = {name: f"qrels/{name}.tsv" for name in ("train", "test")}
    ann = {"negatives": [{"kind": "ann", "top_k": 100}], "in_batch_negatives": True}
    every = max(1, steps // 5)
    return {
        "name": "bench",
        "data": {"kind": "beir", "folder": str(data), "splits": splits},
        "encoder": {
            "kind": "transformer",
            "model": str(weights),
            "pooling": "mean",
            "normalize": True,
            "tokenization": {"query": {"length_tokens": 64}, "document": {"length_tokens": 128}},
        },
        "bm25": None,
        "device": torch.device(bench.device).type,
        "refresher": {"device": bench.device},
        "cache": str(bench.folder / "cache"),
        "final_evaluation": {"rows": ["untrained"], "measures": ["nDCG@10"]},
        "stages": {
            "ance": {
                "init_from": "initial",
                "steps": steps,
                "batch_queries": 16,
                "terms": {"query": {**ann, "loss": {"kind": "nll", "scale": SCALE}}},
                "optimizer": {"learning_rate": 2e-5},
                "refresh": {"every_steps": every, "mode": "async", "adopt": {"after_steps": every}},
            }
        },
    }
