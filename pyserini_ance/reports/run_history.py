"""The history of a run over its steps, from `metrics.jsonl`: losses, dev measures, negatives, seconds.

A position counts the steps of all stages: step s of a stage comes after the steps of the stages before it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.generation import mined_sources
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines

Record = Mapping[str, Any]
WEIGHTED_SUM = "weighted sum"
# `refresh`: saving checkpoints, sync refreshes, and waiting for async ones.
TIMED_EVENTS = ("step", "refresh")
PERCENTILES = ("p10", "p90")  # of the margins, as a band around their mean


@dataclass
class Series:
    """One line of a plot: `x` ascends within a stage; NaN in `y` interrupts the line between stages."""

    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)


class MinedTable(NamedTuple):
    """The report of one table of negatives, and the record of its adoption.

    `label` is its term and the kind of its source: `query: ann`. `values` is what `table_report` describes.
    """

    stage: str
    name: str
    label: str
    record: Record
    values: Record


class RunHistory:
    """The records of a run so far, as lines and sums. Raises as `RunDir.read_recipe` does."""

    def __init__(self, run: RunDir):
        self.run = run
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

    @property
    def starts(self) -> list[float]:
        """The positions at which the stages but the first begin."""
        return [float(first) for first, _ in self.stages.values()][1:]

    def position(self, record: Record, key: str = "step") -> int:
        """The position of the step that a record has under `key`."""
        return self.stages[record["stage"]][0] + int(record[key])

    @cached_property
    def lines(self) -> Mapping[str, dict[str, Series]]:
        """The lines of each plot by name, interrupted between stages; a plot without values has none.

        `loss`: unweighted, of each term, and WEIGHTED_SUM where a step has several terms or a weight; `dev`
        over steps, with several splits also of each, and `dev over time`; `gradient norm`; `live searches`;
        `ignored pairs`; `age` of the negatives in use, in steps. At each adoption: `turnover`, `positives`
        (mean reciprocal rank), `margin` (mean) and `margin p10`, ... of each table, candidates `dropped` by
        filter, and the `composition` of the tables in use: candidates by the source that retrieved them.
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
        in_use: dict[str, dict[str, Counter[str]]] = defaultdict(dict)
        for record in self.records:
            stage = record.get("stage", "")
            if record["event"] == "step":
                x = self.position(record)
                terms = self.recipe.stages[stage].terms.values()
                is_weighted = len(terms) > 1 or any(term.weight != 1 for term in terms)
                total = {WEIGHTED_SUM: record["loss"]} if is_weighted and "loss" in record else {}
                yield "loss", x, stage, total | record.get("terms", {})
                norm = {"grad_norm": record["grad_norm"]} if "grad_norm" in record else {}
                yield "gradient norm", x, stage, norm
                yield "ignored pairs", x, stage, record.get("false_negatives", {})
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
                for table in self._tables_of(record):
                    values = table.values
                    margin, positives = values.get("margin", {}), values.get("positives", {})
                    own = {"turnover": values["new_share"], "margin": margin.get("mean")}
                    own |= {f"margin {percentile}": margin.get(percentile) for percentile in PERCENTILES}
                    own["positives"] = positives.get("mean_reciprocal_rank")
                    for plot, value in own.items():
                        yield plot, x, stage, {} if value is None else {table.label: value}
                    dropped.update(values["dropped"])
                    origins = values.get("origins") or {values["kind"]: values["candidates"]}
                    in_use[stage][table.name] = Counter(origins)
                yield "dropped", x, stage, dropped
                yield "composition", x, stage, sum(in_use[stage].values(), Counter())
        for point in dev_curve(self.records):
            yield "dev over time", point["seconds"] / 60, point["stage"], {point["measure"]: point["value"]}
        for stage, (first, steps) in self.stages.items():
            adoptions = [r for r in self.of_event("generation") if r["stage"] == stage and self._ages(stage)]
            for record, end in zip(adoptions, [*(r["step"] for r in adoptions[1:]), steps], strict=False):
                for step in (record["step"], end):
                    yield "age", first + step, stage, {"age": step - record["checkpoint_step"]}

    def refreshes(self) -> tuple[list[float], list[float]]:
        """The positions, and the minutes of training, at which mined tables that age were adopted."""
        adopted = [
            (float(self.position(record)), seconds / 60)
            for record, seconds in zip(self.records, training_seconds(self.records), strict=True)
            if record["event"] == "generation" and self._ages(record["stage"])
        ]
        return [position for position, _ in adopted], [minutes for _, minutes in adopted]

    def _ages(self, stage: str) -> bool:
        """Whether a stage has tables that the model itself mines."""
        return bool(mined_sources(self.recipe.stages[stage], dynamic_only=True))

    @cached_property
    def tables(self) -> list[MinedTable]:
        """The tables of all adoptions, in order."""
        return [table for record in self.of_event("generation") for table in self._tables_of(record)]

    def _tables_of(self, record: Record) -> Iterator[MinedTable]:
        for name, values in record["tables"].items():
            label = f"{name.rpartition('.')[0]}: {values['kind']}"
            yield MinedTable(record["stage"], name, label, record, values)

    def seconds(self, results: Record | None) -> dict[str, float]:
        """Seconds of the run's processes by part; `results` is the content of `measures.json`, if any.

        Mining in a process of its own (`mode: async`) is no part of them, but waiting for it is.
        """
        parts: dict[str, float] = defaultdict(float)
        parts["optimizer steps"] = sum(r["seconds"] for r in self.of_event("step"))
        for record in self.of_event("documents"):
            for task, seconds in record["parts"].items():
                parts[f"fixed documents: {task.replace('_', ' ')}"] += seconds
        mined = 0.0
        for record in self.of_event("generation"):
            if self.recipe.stages[record["stage"]].effective_refresh.mode == "sync":
                for task, seconds in record["seconds"].items():
                    parts[f"mining: {task.replace('_', ' ')}"] += seconds
                    mined += seconds
        refreshes = self.of_event("refresh")
        dev, tables = (sum(r.get(f"{kind}_seconds", 0.0) for r in refreshes) for kind in ("dev", "tables"))
        parts["waiting for and reading tables"] = max(0.0, tables - mined)
        parts["dev evaluation"] = dev
        parts["saving and pruning checkpoints"] = sum(r["seconds"] for r in refreshes) - dev - tables
        for record in self.of_event("teacher"):
            parts["teachers: mining"] += record["seconds"]["mine"]
            parts["teachers: training"] += record["seconds"]["train"]
        if results:
            parts["final evaluation"] = sum(float(row.get("test seconds") or 0) for row in results["rows"])
            parts["data and tokens"] = results["seconds"].get("data and tokens", 0.0)
            if "everything" in results["seconds"]:  # a resumed run does not know its whole duration
                parts["the rest"] = max(0.0, results["seconds"]["everything"] - sum(parts.values()))
        return {part: seconds for part, seconds in parts.items() if seconds >= 0.05}


def training_seconds(records: Iterable[Record]) -> list[float]:
    """Seconds of training before each record, without dev evaluations."""
    before, seconds = [], 0.0
    for record in records:
        before.append(seconds)
        if record["event"] in TIMED_EVENTS:
            seconds += record["seconds"] - record.get("dev_seconds", 0.0)
        elif record["event"] == "documents":  # frozen documents are encoded and indexed once
            seconds += sum(record["parts"].values())
        elif record["event"] == "teacher":
            seconds += sum(record["seconds"].values())
    return before


def dev_curve(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The dev measures of a run: stage, step, measure, steps of all stages, seconds of training, value.

    A checkpoint's time is when training reached its step. The time of dev evaluations is not counted: it is
    the same in all runs that are compared.
    """
    points = []
    reached: dict[tuple[str, int], tuple[int, float]] = {}
    steps = 0
    for record, seconds in zip(records, training_seconds(records), strict=True):
        if record["event"] in TIMED_EVENTS:
            reached.setdefault((record["stage"], record["step"]), (steps, seconds))
            steps += record["event"] == "step"
        elif record["event"] == "dev":
            stage, step = record["stage"], record["checkpoint_step"]
            at_steps, at_seconds = reached.get((stage, step), (steps, seconds))
            points.append(
                {"stage": stage, "step": step, "measure": record["measure"], "steps": at_steps}
                | {"seconds": at_seconds, "value": record["value"]}
            )
    return points
