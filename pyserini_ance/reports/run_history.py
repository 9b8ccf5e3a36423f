"""The history of a run over its steps, from `metrics.jsonl`: losses, dev measures, negatives, seconds.

A position counts the steps of all stages: step s of a stage comes after the steps of the stages before it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.generation import mined_sources
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines

Record = Mapping[str, Any]
WEIGHTED_SUM = "weighted sum"
# `refresh`: saving checkpoints, sync refreshes, and waiting for async ones.
TIMED_EVENTS = ("step", "refresh")


@dataclass
class Series:
    """One line of a plot: `x` ascends within a stage; NaN in `y` interrupts the line between stages."""

    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class MinedTable:
    """The report of one table of negatives, and of the refresh that it was adopted with.

    `label` is its term and the kind of its source: `query: ann`. `position` is where it was adopted. `values`
    is what `table_report` describes.
    """

    stage: str
    name: str
    label: str
    position: int
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

    def position(self, record: Record, key: str = "step") -> int:
        """The position of the step that a record has under `key`."""
        return self.stages[record["stage"]][0] + int(record[key])

    def over_steps(self, values_of: Callable[[Record], Mapping[str, float]]) -> dict[str, Series]:
        """Lines of the named values of each step."""
        return lines_of((self.position(r), r["stage"], values_of(r)) for r in self.of_event("step"))

    def losses(self) -> dict[str, Series]:
        """The unweighted loss of each term and, where a step has several or a weight, their weighted sum."""
        weighted = {
            name
            for name, stage in self.recipe.stages.items()
            if len(stage.terms) > 1 or any(term.weight != 1 for term in stage.terms.values())
        }

        def values_of(record: Record) -> dict[str, float]:
            total = {WEIGHTED_SUM: record["loss"]} if record["stage"] in weighted and "loss" in record else {}
            return {**total, **record.get("terms", {})}

        return self.over_steps(values_of)

    def step_values(self, key: str) -> dict[str, Series]:
        """One value of each step, such as `grad_norm`."""
        return self.over_steps(lambda record: {key: record[key]} if key in record else {})

    def live_searches(self) -> dict[str, Series]:
        """The measures of the live searches of each step, by term, source and measure."""
        return self.over_steps(
            lambda record: {
                f"{name} {measure}": value
                for name, measures in record.get("found", {}).items()
                for measure, value in measures.items()
            }
        )

    def dev(self) -> dict[str, Series]:
        """The dev measure at the position of its checkpoint; with several splits also that of each."""
        return lines_of(
            (
                self.position(record, "checkpoint_step"),
                record["stage"],
                {record["measure"]: record["value"]}
                | {f"{split} {record['measure']}": v for split, v in record.get("splits", {}).items()},
            )
            for record in self.of_event("dev")
        )

    def refreshes(self) -> tuple[list[float], list[float]]:
        """The positions, and the minutes of training, at which mined tables that age were adopted."""
        adopted = [
            (float(self.position(record)), seconds / 60)
            for record, seconds in zip(self.records, training_seconds(self.records), strict=True)
            if record["event"] == "generation" and self._ages(record["stage"])
        ]
        return [position for position, _ in adopted], [minutes for _, minutes in adopted]

    def ages(self) -> Series:
        """The age of the negatives at each step, as corners of a line: steps since their checkpoint."""
        corners: list[tuple[float, str, dict[str, float]]] = []
        for stage, (first, steps) in self.stages.items():
            adoptions = [r for r in self.of_event("generation") if r["stage"] == stage]
            if not self._ages(stage):
                continue
            for record, end in zip(adoptions, [*(r["step"] for r in adoptions[1:]), steps], strict=False):
                corners += [
                    (first + step, stage, {"age": step - record["checkpoint_step"]})
                    for step in (record["step"], end)
                ]
        return lines_of(corners).get("age", Series())

    def _ages(self, stage: str) -> bool:
        """Whether a stage has tables that the model itself mines."""
        return bool(mined_sources(self.recipe.stages[stage], dynamic_only=True))

    @cached_property
    def tables(self) -> list[MinedTable]:
        """The tables of all adoptions, in order."""
        return [
            MinedTable(
                record["stage"],
                name,
                f"{name.rpartition('.')[0]}: {values['kind']}",
                self.position(record),
                record,
                values,
            )
            for record in self.of_event("generation")
            for name, values in record["tables"].items()
        ]

    def over_tables(self, value_of: Callable[[Record], float | None]) -> dict[str, Series]:
        """A line of one value of the tables for each term and source; tables without it are left out."""
        values = ((table, value_of(table.values)) for table in self.tables)
        return lines_of((t.position, t.stage, {t.label: value}) for t, value in values if value is not None)

    def dropped(self) -> dict[str, Series]:
        """Candidates that each filter dropped, at each refresh, over all tables that it mined."""
        totals: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        for table in self.tables:
            totals[table.stage, table.position].update(table.values["dropped"])
        return lines_of((x, stage, counts) for (stage, x), counts in totals.items())

    def composition(self) -> dict[str, Series]:
        """Candidates by the source that retrieved them, in the tables in use after each adoption."""
        in_use: dict[tuple[str, str], Counter[str]] = {}
        totals: dict[tuple[str, int], Counter[str]] = {}
        for table in self.tables:
            origins = table.values.get("origins") or {table.values["kind"]: table.values["candidates"]}
            in_use[table.stage, table.name] = Counter(origins)
            counts_of_stage = (counts for (stage, _), counts in in_use.items() if stage == table.stage)
            totals[table.stage, table.position] = sum(counts_of_stage, Counter())
        return lines_of((x, stage, counts) for (stage, x), counts in totals.items())

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
        parts["averaging weights"] = sum(r["seconds"] for r in self.of_event("average"))
        if results:
            parts["final evaluation"] = sum(float(row.get("test seconds") or 0) for row in results["rows"])
            parts["data and tokens"] = results["seconds"].get("data and tokens", 0.0)
            if "everything" in results["seconds"]:  # a resumed run does not know its whole duration
                parts["the rest"] = max(0.0, results["seconds"]["everything"] - sum(parts.values()))
        return {part: seconds for part, seconds in parts.items() if seconds >= 0.05}


def lines_of(points: Iterable[tuple[float, str, Mapping[str, float]]]) -> dict[str, Series]:
    """Lines by name, from (x, stage, values by name); they are interrupted between stages."""
    lines: dict[str, Series] = defaultdict(Series)
    last_stage: dict[str, str] = {}
    for x, stage, values in points:
        for name, value in values.items():
            line = lines[name]
            if last_stage.setdefault(name, stage) != stage:
                line.x.append(line.x[-1])
                line.y.append(math.nan)
                last_stage[name] = stage
            line.x.append(x)
            line.y.append(value)
    return dict(lines)


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
