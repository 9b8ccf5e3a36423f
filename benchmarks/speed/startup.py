"""Benchmark `startup`: how long a command takes before it works, each in a process of its own."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.rounds import Contender, Contest, Rounds

OWN = {
    "pyserini-ance --help": ["--help"],
    "pyserini-ance train --help": ["train", "--help"],
    "pyserini-ance train demo/ance --print": ["train", "demo/ance", "--print"],
}


def startup(options: Mapping[str, Any], folder: Path) -> Contest:
    """Our commands, and the imports that any program of the peers begins with."""
    commands = {name: ["-m", "pyserini_ance", *words] for name, words in OWN.items()}
    contenders = [Contender(name, run, {"arguments": words}) for name, words in commands.items()]
    contenders += [
        Contender(f"import {module}", run, {"arguments": ["-c", f"import {module}"]}, (module,), against=True)
        for module in ("torch", "sentence_transformers")
    ]
    return Contest("startup", "processes from their start to their end", contenders)


def run(rounds: Rounds, folder: Path, arguments: Sequence[str]) -> None:
    rounds.works_itself = False
    for _ in rounds:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
