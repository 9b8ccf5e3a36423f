"""The machine that a benchmark runs on: its name, the versions, and how fast it multiplies and copies."""

import datetime
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import pyserini_ance
from benchmarks.speed.rounds import Contender, Rounds, contest
from pyserini_ance.runs.provenance import command_line, commit_of

PEERS = ("sentence-transformers", "pyserini", "faiss-cpu", "faiss-gpu", "onnxruntime", "openvino")
PACKAGES = ("torch", "transformers", *PEERS)
INSTRUCTIONS = ("avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx_bf16")
PEAKS = ("fp32 torch.mm", "fp32 oneDNN", "bf16 oneDNN", "copy")
SIZE, REPEATS = 2048, 5
COPIED_BYTES = 1 << 28


def describe_machine(threads: int) -> dict[str, Any]:
    """Command, date, commit, versions, processor, and `peaks`: GFLOP/s of a core by precision and library,
    and GB/s of a copy."""
    import torch

    sets = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    with TemporaryDirectory(prefix="pyserini_ance.") as folder:
        [measured] = contest([Contender("peaks", peaks)], Path(folder), 1, threads, "peaks")
    return {
        **describe_software(),
        "instructions": [name for name in INSTRUCTIONS if sets.get(name)],
        "threads": threads,
        "peaks": {} if measured.output is None else dict(zip(PEAKS, measured.output.tolist(), strict=True)),
    }


def describe_software() -> dict[str, Any]:
    """Command, date, commit, versions, and the processor's name."""
    commit = commit_of(Path(pyserini_ance.__file__).parent)
    return {
        "command": command_line(sys.argv),
        "date": datetime.date.today().isoformat(),
        "pyserini_ance": pyserini_ance.__version__,
        "commit": commit and commit["hash"][:7] + "+" * commit["changed"],
        "processor": _processor(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def peaks(rounds: Rounds, folder: Path) -> None:
    """Products of 2048 x 2048 and a copy of 256 MiB, the best of five, by CPU time.

    `torch.mm` uses the library that torch was built with, MKL on x86. oneDNN multiplies in bf16, and in fp32
    where linear layers are packed for it; NaN where torch has no oneDNN.
    """
    import torch
    from torch.utils.mkldnn import to_mkldnn

    a, b = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    half, other = a.bfloat16(), b.bfloat16()
    source, target = (torch.zeros(COPIED_BYTES, dtype=torch.uint8) for _ in range(2))
    work: dict[str, Callable[[], Any]] = {
        "fp32 torch.mm": lambda: a @ b,
        "copy": lambda: target.copy_(source),
    }
    if torch.backends.mkldnn.is_available():
        linear, x = to_mkldnn(torch.nn.Linear(SIZE, SIZE).eval()), a.to_mkldnn()
        work |= {"fp32 oneDNN": lambda: linear(x), "bf16 oneDNN": lambda: half @ other}
    for _ in rounds:
        with torch.inference_mode():
            seconds = {name: _fastest(product) for name, product in work.items()}
        amounts = {name: 2 * COPIED_BYTES if name == "copy" else 2 * SIZE**3 for name in work}
        rounds.output = np.array(
            [amounts[name] / seconds[name] / 1e9 if name in work else np.nan for name in PEAKS]
        )


def _fastest(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)
