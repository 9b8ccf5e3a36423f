"""The history of a run over its steps, from `metrics.jsonl`: losses, dev measures, negatives, seconds;
and its plots, drawn by matplotlib as SVG.

A position counts the steps of all stages: step s of a stage comes after the steps of the stages before it.
"""

import io
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.generation import mined_sources
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines

Record = Mapping[str, Any]
WEIGHTED_SUM = "weighted sum"
MARGIN = "margin of "  # and the kind of source: their scores have different scales


@dataclass
class Series:
    """One line of a plot: `x` ascends within a stage; NaN in `y` interrupts the line between stages."""

    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)


class RunHistory:
    """The records of a run so far, as lines and sums. Raises as `RunDir.read_recipe` does."""

    def __init__(self, run: RunDir):
        self.recipe: Recipe = run.read_recipe()
        self.records: Sequence[Record] = read_json_lines(run.metrics)

    def of_event(self, event: str) -> list[Record]:
        """The records of one kind, in order."""
        return [record for record in self.records if record["event"] == event]

    @cached_property
    def stages(self) -> dict[str, tuple[int, int]]:
        """The first position and the number of steps done of each stage that has begun."""
        done: dict[str, int] = {}
        for record in self.records:
            if "stage" in record:
                last = record["step"] + 1 if record["event"] == "step" else 0
                done[record["stage"]] = max(done.get(record["stage"], 0), last)
        spans, first = {}, 0
        for stage, steps in done.items():
            spans[stage] = (first, steps)
            first += steps
        return spans

    @property
    def steps(self) -> int:
        """The steps done in all stages."""
        return sum(steps for _, steps in self.stages.values())

    def position(self, record: Record, key: str = "step") -> int:
        """The position of the step that a record has under `key`."""
        return self.stages[record["stage"]][0] + int(record[key])

    @property
    def adoptions(self) -> list[Record]:
        """The records of adopted tables in stages that have tables which the model itself mines."""
        return [
            record
            for record in self.of_event("generation")
            if mined_sources(self.recipe.stages[record["stage"]], dynamic_only=True)
        ]

    @cached_property
    def lines(self) -> Mapping[str, dict[str, Series]]:
        """The lines of each plot by name, interrupted between stages; a plot without values has none.

        `loss`: unweighted, of each term, and WEIGHTED_SUM where a step has several terms or a weight; `dev`,
        with several splits also of each; `gradient norm`; `live searches`; `age` of the negatives in use, in
        steps. At each adoption: `turnover` and mean margin (MARGIN and a kind) of each table, candidates
        `dropped` by filter, what a refresh measured of the vectors that it `corrected`, and the age that the
        encoded ones under them had (`age`).
        """
        lines: dict[str, dict[str, Series]] = defaultdict(lambda: defaultdict(Series))
        last_stage: dict[tuple[str, str], str] = {}
        for plot, x, stage, values in self._points():
            for name, value in values.items():
                line = lines[plot][name]
                if last_stage.setdefault((plot, name), stage) != stage:
                    line.x.append(line.x[-1])
                    line.y.append(math.nan)
                    last_stage[plot, name] = stage
                line.x.append(x)
                line.y.append(value)
        return lines

    def _points(self) -> Iterator[tuple[str, float, str, Mapping[str, float]]]:
        """(plot, x, stage, values by the name of their line), each plot in order."""
        for record in self.records:
            stage = record.get("stage", "")
            if record["event"] == "step":
                x = self.position(record)
                terms = self.recipe.stages[stage].terms.values()
                is_weighted = len(terms) > 1 or any(term.weight != 1 for term in terms)
                total = {WEIGHTED_SUM: record["loss"]} if is_weighted and "loss" in record else {}
                yield "loss", x, stage, total | record.get("terms", {})
                if "grad_norm" in record:
                    yield "gradient norm", x, stage, {"grad_norm": record["grad_norm"]}
                for name, measures in record.get("found", {}).items():
                    yield "live searches", x, stage, {f"{name} {m}": value for m, value in measures.items()}
            elif record["event"] == "dev":
                measure = record["measure"]
                own = {f"{split} {measure}": value for split, value in record.get("splits", {}).items()}
                x = self.position(record, "checkpoint_step")
                yield "dev", x, stage, {measure: record["value"]} | own
            elif record["event"] == "generation":
                x = self.position(record)
                dropped = Counter[str]()
                for name, table in record["tables"].items():
                    label = table_label(name, table)
                    dropped.update(table["dropped"])
                    if table["new_share"] is not None:
                        yield "turnover", x, stage, {label: table["new_share"]}
                    if "margin" in table:
                        yield f"{MARGIN}{table['kind']}", x, stage, {label: table["margin"]["mean"]}
                yield "dropped", x, stage, dropped
                measured = record.get("encoded", {})
                names = ("recall", "rank_correlation")
                yield "corrected", x, stage, {name: measured[name] for name in names if name in measured}
                ages = {"age of vectors, mean": "mean_age_steps", "age of vectors, oldest": "max_age_steps"}
                yield "age", x, stage, {name: measured[key] for name, key in ages.items() if key in measured}
        for stage, (first, steps) in self.stages.items():
            adopted = [record for record in self.adoptions if record["stage"] == stage]
            for record, end in zip(adopted, [*(r["step"] for r in adopted[1:]), steps], strict=False):
                for step in (record["step"], end):
                    yield "age", first + step, stage, {"age": step - record["checkpoint_step"]}

    def seconds(self, results: Record | None) -> dict[str, float]:
        """Seconds of the run's processes by part; `results` is the content of `measures.json`, if any.

        Mining in a process of its own (`mode: async`) is no part of them, but waiting for it is.
        """
        parts: dict[str, float] = defaultdict(float)
        for record in self.records:
            match record["event"]:
                case "step":
                    parts["optimizer steps"] += record["seconds"]
                case "documents":
                    for task, seconds in record["parts"].items():
                        parts[f"fixed documents: {task.replace('_', ' ')}"] += seconds
                case "generation" if self.recipe.stages[record["stage"]].effective_refresh.mode == "sync":
                    for task, seconds in record["seconds"].items():
                        parts[f"mining: {task.replace('_', ' ')}"] += seconds
                        parts["waiting for and reading tables"] -= seconds
                case "refresh":
                    dev, tables = (record.get(f"{kind}_seconds", 0.0) for kind in ("dev", "tables"))
                    parts["dev evaluation"] += dev
                    parts["waiting for and reading tables"] += tables
                    parts["saving and pruning checkpoints"] += record["seconds"] - dev - tables
                case "teacher":
                    parts["teachers: mining"] += record["seconds"]["mine"]
                    parts["teachers: training"] += record["seconds"]["train"]
        if results:
            parts["final evaluation"] = sum(float(row.get("test seconds") or 0) for row in results["rows"])
            parts["data and tokens"] = results["seconds"].get("data and tokens", 0.0)
            if "everything" in results["seconds"]:  # a resumed run does not know its whole duration
                known = sum(seconds for seconds in parts.values() if seconds > 0)
                parts["the rest"] = results["seconds"]["everything"] - known
        return {part: seconds for part, seconds in parts.items() if seconds >= 0.05}


def table_label(name: str, table: Record) -> str:
    """The term of a mined table and the kind of its source: `query: ann`."""
    return f"{name.rpartition('.')[0]}: {table['kind']}"


# Told apart by the colour-blind (Okabe and Ito 2008, Color Universal Design).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
MAX_POINTS = 400  # of a line; of a longer one, every second point is drawn, or every third, ...
SMOOTH_SHARE = 25  # a running mean is over 1/25 of the points
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # texts stay texts
    "svg.hashsalt": "report",  # equal plots have equal ids
    "path.snap": False,  # values are drawn where they are, not at the nearest pixel
    "font.size": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def line_plot(
    lines: Mapping[str, Series],
    y_label: str,
    *,
    stages: Sequence[float] = (),
    marks: Sequence[float] = (),
    smooth: bool = False,
    points: bool = False,
) -> str:
    """Lines over the steps of all stages, as an SVG element for a page.

    `stages`: x of the starts of stages. `marks`: x of refreshes. `smooth`: a running mean, with the values
    pale behind it. `points`: with a dot for each value.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(4.4, 2.8), layout="constrained")
        axes = figure.subplots()
        axes.set(xlabel="step", ylabel=y_label)
        for start in stages:
            axes.axvline(start, color="black", linewidth=0.8, alpha=0.5, linestyle=":")
        for refresh in marks:
            axes.axvline(refresh, ymax=0.05, color="black", linewidth=1.4)
        for number, (name, line) in enumerate(lines.items()):
            colour = COLOURS[number % len(COLOURS)]
            x, y = np.array(line.x, float), np.array(line.y, float)
            every = math.ceil(len(y) / MAX_POINTS) or 1
            drawn = np.isnan(y) | (np.arange(len(y)) % every == 0)  # the line stays interrupted at a NaN
            if smooth:
                axes.plot(x[drawn], y[drawn], color=colour, linewidth=0.7, alpha=0.3)
                y = running_mean(y, max(1, len(y) // SMOOTH_SHARE))
            style: dict[str, Any] = {"marker": "o", "markersize": 3.4} if points else {}
            style |= {"linestyle": LINES[number % len(LINES)], "linewidth": 1.3}
            axes.plot(x[drawn], y[drawn], color=colour, label=name, **style)
        if len(lines) > 1:
            figure.legend(loc="outside upper left", ncols=2)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def running_mean(y: np.ndarray, width: int) -> np.ndarray:
    """The mean of each value (n,) and the `width` - 1 before it in its stage; NaN stays."""
    import pandas as pd

    values = pd.Series(y)
    of_stages = values.groupby(values.isna().cumsum())
    return of_stages.rolling(width, min_periods=1).mean().where(values.notna().to_numpy()).to_numpy()
