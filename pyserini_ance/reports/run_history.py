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
from pyserini_ance.reports.dev_curves import dev_points, training_seconds
from pyserini_ance.runs.generation import mined_sources
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines

Record = Mapping[str, Any]
WEIGHTED_SUM = "weighted sum"


@dataclass
class Series:
    """One line of a plot: `x` ascends within a stage; NaN in `y` interrupts the line between stages."""

    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)

    def add(self, x: float, y: float) -> None:
        self.x.append(x)
        self.y.append(y)

    def interrupt(self) -> None:
        if self.y and not math.isnan(self.y[-1]):
            self.add(self.x[-1], math.nan)


@dataclass(frozen=True)
class MinedTable:
    """The report of one table of negatives, and of the refresh that it was adopted with.

    `position` is that of the adoption. `values` is what `table_report` describes.
    """

    stage: str
    name: str
    position: int
    record: Record
    values: Record

    @property
    def label(self) -> str:
        """Its term and the kind of its source: `query: ann`."""
        return f"{self.name.rpartition('.')[0]}: {self.values['kind']}"


class RunHistory:
    """What a run has recorded so far. Raises as `RunDir.read_recipe` does."""

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
        steps = ((self.position(record), record) for record in self.of_event("step"))
        return _lines((x, record["stage"], values_of(record)) for x, record in steps)

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

    def ignored_pairs(self) -> dict[str, Series]:
        """Pairs that the `false_negative_margin` of each term ignored, by step."""
        return self.over_steps(lambda record: record.get("false_negatives", {}))

    def dev(self) -> dict[str, Series]:
        """The dev measure at the position of its checkpoint; with several splits also that of each."""
        scored = ((self.position(record, "checkpoint_step"), record) for record in self.of_event("dev"))
        return _lines(
            (
                x,
                record["stage"],
                {
                    record["measure"]: record["value"],
                    **{f"{split} {record['measure']}": v for split, v in record.get("splits", {}).items()},
                },
            )
            for x, record in scored
        )

    def dev_over_minutes(self) -> dict[str, Series]:
        """The dev measure over minutes of training, as `compare --curve` draws it."""
        points = dev_points(self.records)
        return _lines((point.seconds / 60, point.stage, {point.measure: point.value}) for point in points)

    def refreshes(self) -> tuple[list[int], list[float]]:
        """The positions, and the minutes of training, at which mined tables that age were adopted."""
        adopted = [
            (self.position(record), seconds / 60)
            for record, seconds in zip(self.records, training_seconds(self.records), strict=True)
            if record["event"] == "generation" and self._ages(record["stage"])
        ]
        return [position for position, _ in adopted], [minutes for _, minutes in adopted]

    def ages(self) -> Series:
        """The age of the negatives at each step, as corners of a line: steps since their checkpoint."""
        line = Series()
        for stage, (first, steps) in self.stages.items():
            adoptions = [r for r in self.of_event("generation") if r["stage"] == stage]
            if not adoptions or not self._ages(stage):
                continue
            line.interrupt()
            ends = [*(record["step"] for record in adoptions[1:]), steps]
            for record, end in zip(adoptions, ends, strict=True):
                for step in (record["step"], end):
                    line.add(first + step, step - record["checkpoint_step"])
        return line

    def _ages(self, stage: str) -> bool:
        """Whether a stage has tables that the model itself mines."""
        return bool(mined_sources(self.recipe.stages[stage], dynamic_only=True))

    @cached_property
    def tables(self) -> list[MinedTable]:
        """The tables of all adoptions, in order."""
        return [
            MinedTable(record["stage"], name, self.position(record), record, values)
            for record in self.of_event("generation")
            for name, values in record["tables"].items()
        ]

    def over_tables(self, value_of: Callable[[Record], float | None]) -> dict[str, Series]:
        """A line of one value of the tables for each term and source; tables without it are left out."""
        values = ((table, value_of(table.values)) for table in self.tables)
        return _lines((t.position, t.stage, {t.label: value}) for t, value in values if value is not None)

    def dropped(self) -> dict[str, Series]:
        """Candidates that each filter dropped, at each refresh, over all tables that it mined."""
        totals: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        for table in self.tables:
            totals[table.stage, table.position].update(table.values["dropped"])
        return _lines((x, stage, counts) for (stage, x), counts in totals.items())

    def composition(self) -> dict[str, Series]:
        """Candidates by the source that retrieved them, in the tables in use after each adoption."""
        in_use: dict[tuple[str, str], Counter[str]] = {}
        totals: dict[tuple[str, int], Counter[str]] = {}
        for table in self.tables:
            origins = table.values.get("origins") or {table.values["kind"]: table.values["candidates"]}
            in_use[table.stage, table.name] = Counter(origins)
            of_stage = (counts for (stage, _), counts in in_use.items() if stage == table.stage)
            totals[table.stage, table.position] = sum(of_stage, Counter())
        return _lines((x, stage, counts) for (stage, x), counts in totals.items())

    def seconds(self, results: Record | None) -> dict[str, float]:
        """Seconds of the run's processes by part; `results` is the content of `measures.json`, if any.

        Mining in a process of its own (`mode: async`) is no part of them, but waiting for it is.
        """
        parts: dict[str, float] = defaultdict(float)
        parts["optimizer steps"] = sum(r["seconds"] for r in self.of_event("step"))
        for record in self.of_event("documents"):
            for task, seconds in record["parts"].items():
                parts[f"fixed documents: {_words(task)}"] += seconds
        mined = 0.0
        for record in self.of_event("generation"):
            if self.recipe.stages[record["stage"]].effective_refresh.mode == "sync":
                for task, seconds in record["seconds"].items():
                    parts[f"mining: {_words(task)}"] += seconds
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

    def memory_bytes(self) -> dict[str, dict[str, int]]:
        """The highest peak of memory up to the end of each stage, by kind, where it is recorded."""
        recorded = [record for record in self.of_event("refresh") if "memory_bytes" in record]
        return {record["stage"]: dict(record["memory_bytes"]) for record in recorded}


def _lines(points: Iterable[tuple[float, str, Mapping[str, float]]]) -> dict[str, Series]:
    """Lines by name, from (x, stage, values by name); they are interrupted between stages."""
    lines: dict[str, Series] = defaultdict(Series)
    last_stage: dict[str, str] = {}
    for x, stage, values in points:
        for name, value in values.items():
            if last_stage.setdefault(name, stage) != stage:
                lines[name].interrupt()
                last_stage[name] = stage
            lines[name].add(x, value)
    return dict(lines)


def _words(task: str) -> str:
    return task.replace("_", " ")
