"""What all parts of `bench --gpu` share: clocks, peaks, and rows that say why they are empty."""

import gc
import math
import os
import statistics
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.gpu_inputs import Model, Sizes
from pyserini_ance.encoders.hardware import resolve_precision

LARGE_BUDGET = 1 << 16  # tokens at once, where a GPU's host is not the limit
PEER = "sentence-transformers"
REPEATS = 10  # of a product or copy between two looks at the clock


class NotMeasured(Exception):
    """Why a row has no figures."""


@dataclass
class Row:
    """Figures of one contender at one task, or a `note` on why there are none."""

    part: str
    task: str
    contender: str
    figures: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    def as_cells(self) -> dict[str, Any]:
        figures = {name: _text(name, value) for name, value in self.figures.items()}
        return {
            "task": self.task,
            "contender": self.contender,
            **figures,
            **({"note": self.note} if self.note else {}),
        }


def _text(name: str, value: Any) -> str:
    if name == "peak":
        return f"{100 * value:.0f} %"
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@dataclass
class Bench:
    """What all parts share: the device, the sizes, the time that is left, and the rows so far."""

    device: str
    sizes: Sizes
    folder: Path
    end: float
    data: Path | None = None
    weights: Path | None = None
    run_steps: int = 5000
    rows: list[Row] = field(default_factory=list)
    part: str = ""
    part_end: float = math.inf

    @property
    def is_cuda(self) -> bool:
        return torch.device(self.device).type == "cuda"

    @property
    def precision(self) -> str:
        return resolve_precision("auto", self.device)

    @cached_property
    def model(self) -> Model:
        return Model.write(self.folder / "model", self.sizes)

    @cached_property
    def peaks(self) -> dict[str, float]:
        """TFLOP/s of the fastest bf16 and fp32 products, and GB/s of a copy on the device."""
        size = self.sizes.matrix
        matrix = torch.randn(size, size, device=self.device)
        half, source = matrix.bfloat16(), torch.empty(size * size * 8, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        work: dict[str, Callable[[], Any]] = {
            "bf16": lambda: half @ half,
            "fp32": lambda: matrix @ matrix,
            "copy": lambda: target.copy_(source),
        }
        times = {name: self.seconds(partial(_repeat, each), 5) / REPEATS for name, each in work.items()}
        products = {name: 2 * size**3 / times[name] / 1e12 for name in ("bf16", "fp32")}
        return {**products, "copy": 2 * source.nbytes / times["copy"] / 1e9}

    def left(self) -> float:
        """Seconds that the current part still has."""
        return min(self.part_end, self.end) - time.perf_counter()

    def once(self, work: Callable[[], Any]) -> float:
        """Seconds of one call, until the device has done all its work."""
        if not self.is_cuda:
            start = time.perf_counter()
            work()
            return time.perf_counter() - start
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / 1000

    def seconds(self, work: Callable[[], Any], rounds: int | None = None) -> float:
        """The median of several calls after one that does not count; of fewer where time is short."""
        work()
        times: list[float] = []
        while not times or (len(times) < (rounds or self.sizes.rounds) and self.left() > max(times)):
            times.append(self.once(work))
        return statistics.median(times)

    def rate(self, flops: float, seconds: float) -> dict[str, float]:
        """TFLOP/s, and the share of the peak."""
        rate = flops / seconds / 1e12
        return {"TFLOP/s": rate, "peak": rate / self.peaks["bf16"]}

    def row(
        self, task: str, contender: str, measure: Callable[[], Mapping[str, Any]], needs: Sequence[str] = ()
    ) -> None:
        """Measure a row. The next rows are measured whatever happens in this one."""
        row = Row(self.part, task, contender)
        try:
            if missing := [name for name in needs if find_spec(name) is None]:
                raise NotMeasured(f"not installed: {', '.join(missing)}")
            if self.left() <= 0:
                raise NotMeasured("the time is over")
            if self.is_cuda:
                torch.cuda.reset_peak_memory_stats()
            row.figures = dict(measure())
            if self.is_cuda:
                row.figures["GiB"] = torch.cuda.max_memory_allocated() / 2**30
        except NotMeasured as reason:
            row.note = f"not measured: {reason}"
        except Exception as error:
            if os.environ.get("PYSERINI_ANCE_DEBUG") == "1":
                traceback.print_exc()
            row.note = ": ".join(["failed", type(error).__name__, *str(error).strip().splitlines()[:1]])
        gc.collect()
        if self.is_cuda:
            torch.cuda.empty_cache()
        self.rows.append(row)
        cells = row.as_cells()
        print(f"{self.part}:", ", ".join(f"{name} {cells[name]}" for name in cells), flush=True)

    def begin(self, part: str, seconds: float) -> None:
        """Go on with another part, which may take `seconds`."""
        self.part, self.part_end = part, time.perf_counter() + seconds


def _repeat(work: Callable[[], Any]) -> None:
    for _ in range(REPEATS):
        work()
