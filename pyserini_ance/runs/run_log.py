"""RunLog: the two logs of a run, `metrics.jsonl` and `decisions.jsonl`."""

import json
from collections.abc import Collection
from typing import Any

from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import append_json_line, read_json_lines, write_whole

# The kinds of records in metrics.jsonl, their `event`.
METRICS = ("step", "refresh", "generation", "dev", "documents", "training_queries", "teacher", "targets")


class RunLog:
    """Appends to `metrics.jsonl` and `decisions.jsonl`.

    Every record has an `event`, and during training a `stage` and a `step`. Only one process of a world
    `writes`.
    """

    def __init__(self, run: RunDir, writes: bool = True):
        self.run, self.writes = run, writes

    def metric(self, event: str, **values: Any) -> None:
        if self.writes:
            record = {"event": event, **values}
            append_json_line(self.run.metrics, record)
            for listener in self.run.listeners:
                listener(record)

    def decide(self, event: str, **values: Any) -> None:
        """Append a record to the decisions, and return when it is on disk."""
        if self.writes:
            append_json_line(self.run.decisions, {"event": event, **values}, durable=True)

    def decisions(self, event: str, stage: str | None = None) -> list[dict]:
        """All decisions of one kind, in order; with `stage`, those of that stage."""
        records = (record for record in read_json_lines(self.run.decisions) if record["event"] == event)
        return [record for record in records if stage in (None, record.get("stage"))]

    def stage_seconds(self, stage: str) -> dict[str, float]:
        """Seconds that a stage spent in steps and in refreshes, as columns of the results table.

        Refreshes include dev evaluations, and encoding and indexing frozen documents; a stage with none of
        these has no such column.
        """
        spent = self.seconds_spent(stage)
        seconds = {"train seconds": round(spent["step"], 1)}
        if refreshing := spent["refresh"] + spent["documents"]:
            seconds["refresh seconds"] = round(refreshing, 1)
        return seconds

    def seconds_spent(self, stage: str) -> dict[str, float]:
        """Seconds of a stage by event; each step counts once, however often the run was resumed."""
        spent = {"step": 0.0, "refresh": 0.0, "documents": 0.0}
        for record in read_json_lines(self.run.metrics):
            event = record["event"]
            if record.get("stage") == stage and event in spent:
                spent[event] += sum(record["parts"].values()) if event == "documents" else record["seconds"]
        return spent

    def forget_after(self, stage: str, step: int, keep: Collection[str] = ()) -> None:
        """Drop the records of `stage` from `step` on, which a resumed run makes again.

        Decisions whose event is in `keep` stay.
        """
        for path, kept_events in ((self.run.metrics, ()), (self.run.decisions, keep)):
            records = read_json_lines(path)
            remaining = [
                r for r in records if r.get("stage") != stage or r["step"] < step or r["event"] in kept_events
            ]
            if remaining != records:
                write_whole(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in remaining))
