"""The machine that a benchmark runs on, and the versions of what runs."""

import datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pyserini_ance
from benchmarks.speed.rounds import proc_value
from pyserini_ance.runs.provenance import command_line, commit_of

PACKAGES = ("torch", "transformers", "sentence-transformers", "pyserini", "faiss-cpu", "faiss-gpu")


def describe_machine() -> dict[str, Any]:
    """Command, date, commit, versions, the processor's name and its vector instructions."""
    import torch

    commit = commit_of(Path(pyserini_ance.__file__).parent)
    sets = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    names = ("avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx_bf16")
    return {
        "command": command_line(),
        "date": datetime.date.today().isoformat(),
        "pyserini_ance": pyserini_ance.__version__,
        "commit": commit and commit["hash"][:7] + "+" * commit["changed"],
        "processor": proc_value("/proc/cpuinfo", "model name") or "unknown",
        "instructions": [name for name in names if sets.get(name)],
        "versions": {each.name: each.version for each in distributions() if each.name in PACKAGES},
    }
