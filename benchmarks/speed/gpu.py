"""Benchmarks of a GPU: does it compute what the CPU does, and how close to its limit does it work?

All inputs are made on the spot; Pyserini, Java, faiss and a network are not needed. The checks come first. A
row that could not be measured says why. `--device cpu --small` tries everything in tiny sizes.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from benchmarks.speed import gpu_retrieval, gpu_runs, gpu_training
from benchmarks.speed.gpu_bench import Bench, Row
from benchmarks.speed.gpu_inputs import FULL, SMALL
from benchmarks.speed.machine import describe_software
from pyserini_ance.encoders.family import quiet_transformers
from pyserini_ance.evaluation.tables import table
from pyserini_ance.storage.files import write_json


class Part(NamedTuple):
    """A table of rows. share: of the whole time, which it may take."""

    title: str
    share: float
    measure: Callable[[Bench], None]


PARTS = {
    "check": Part("Checks against the CPU", 0.08, gpu_training.check),
    "encode": Part("Encoding documents", 0.25, gpu_retrieval.encode),
    "mine": Part("Exact search", 0.25, gpu_retrieval.mine),
    "train": Part("Training steps", 0.2, gpu_training.train),
    "ltre": Part("LTRe: steps that search all documents", 0.08, gpu_training.ltre),
    "share": Part("A trainer and a refresher on one device", 0.12, gpu_runs.share),
    "run": Part("A whole run, refreshed in the background", 1.0, gpu_runs.run),
}
LEGEND = """- ms: of a round (encode, mine), the median; of a step (train, ltre), the mean; after warm-up
- TFLOP/s: useful operations, on real tokens or vectors, without padding and recomputation
- peak: their share of the fastest bf16 product that was measured
- GiB: the peak of the device's memory"""
SMI = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
SMI_SECONDS = 20


def main(arguments: list[str] | None = None) -> int:
    """Measure all parts; return 1 if a check has failed, else 0."""
    args = _parse(arguments)
    quiet_transformers()
    seconds, sizes = 60 * args.minutes, SMALL if args.small else FULL
    with TemporaryDirectory(prefix="pyserini_ance.", dir=args.scratch) as folder:
        inputs = (args.data, args.weights, args.run_steps)
        bench = Bench(args.device, sizes, Path(folder), time.perf_counter() + seconds, *inputs)
        machine = describe(bench)
        for name in args.parts:
            bench.begin(name, PARTS[name].share * seconds)
            PARTS[name].measure(bench)
            if args.json:
                rows = [vars(row) for row in bench.rows]
                write_json(args.json, {"machine": machine, "small": args.small, "rows": rows})
    print("\n" + as_markdown(machine, bench.rows))
    wrong = [row.task for row in bench.rows if row.part == "check" and not row.figures.get("agrees")]
    if wrong:
        print(f"\nerror: {args.device} differs from the CPU: {', '.join(wrong)}", file=sys.stderr)
    return int(bool(wrong))


def describe(bench: Bench) -> dict[str, Any]:
    """Command, date, commit, versions, processor, the GPU with its driver, and its peaks."""
    device: dict[str, Any] = {"device": bench.device}
    if bench.is_cuda:
        properties = torch.cuda.get_device_properties(bench.device)
        device |= {
            "gpu": properties.name,
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
            "nvidia_smi": _nvidia_smi(),
        }
    return {**describe_software(), **device, "precision": bench.precision, "peaks": bench.peaks}


def _nvidia_smi() -> list[str]:
    """Name, driver and memory of each GPU; empty without the program."""
    try:
        done = subprocess.run(SMI, capture_output=True, text=True, check=True, timeout=SMI_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()


def as_markdown(machine: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """The machine, a table of each part, and a legend: what the documentation shows."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    drivers = "; ".join(machine.get("nvidia_smi", []))
    where = [machine.get("gpu", machine["processor"]), drivers, machine["date"]]
    where += [f"commit {machine['commit']}"] if machine["commit"] else []
    peaks = machine["peaks"]
    lines = [
        f"{', '.join(filter(None, where))}; {versions}",
        f"Peaks: bf16 {peaks['bf16']:.3g} TFLOP/s, fp32 {peaks['fp32']:.3g}, copy {peaks['copy']:.3g} GB/s",
        f"Command: `{machine['command']}`",
    ]
    for part in dict.fromkeys(row.part for row in rows):
        cells = [row.as_cells() for row in rows if row.part == part]
        columns = [column for row in cells for column in row if column != "note"]
        columns += ["note"] if any("note" in row for row in cells) else []
        lines += ["", f"{PARTS[part].title}:", "", table(cells, list(dict.fromkeys(columns)))]
    return "\n".join([*lines, "", LEGEND])


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pyserini-ance bench --gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add, names = parser.add_argument, list(PARTS)
    add("--device", default="cuda", help="cuda, cuda:N or cpu (default: %(default)s)")
    add("--small", action="store_true", help="tiny sizes: seconds, and no useful times")
    add("--minutes", type=float, default=9.5, help="for everything (default: %(default)s)")
    add("--parts", nargs="+", choices=names, default=names, metavar="PART", help=", ".join(names))
    add("--data", type=Path, help="run: a folder in BEIR's layout, such as medquad")
    add("--weights", type=Path, help="run: the folder of an encoder, such as MiniLM")
    add("--run-steps", type=int, default=5000, help="run: steps (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="also write all figures to FILE")
    add("--scratch", type=Path, help="where files are written meanwhile (default: the system's place)")
    args = parser.parse_args(arguments)
    if args.device != "cpu" and not torch.cuda.is_available():
        parser.error("torch finds no GPU; `--device cpu --small` tries the whole script without one")
    return args


if __name__ == "__main__":
    sys.exit(main())
