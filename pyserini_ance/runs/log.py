"""The two records of a run: metrics of every step, and decisions that later steps depend on."""

import json
from collections.abc import Collection
from typing import Any

from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import append_json_line, read_json_lines, write_whole


class RunLog:
    """Appends to `metrics.jsonl` and `decisions.jsonl`. Every record has an `event`, and in training a `stage` and a `step`.

    Of several processes one `writes`.
    """

    def __init__(self, run: RunDir, writes: bool = True):
        self.run, self.writes = run, writes

    def metric(self, event: str, **values: Any) -> None:
        if self.writes:
            append_json_line(self.run.metrics, {"event": event, **values})

    def decide(self, event: str, **values: Any) -> None:
        """On disk before this returns."""
        if self.writes:
            append_json_line(self.run.decisions, {"event": event, **values}, durable=True)

    def decisions(self, event: str) -> list[dict]:
        return [record for record in read_json_lines(self.run.decisions) if record["event"] == event]

    def stage_seconds(self, stage: str) -> dict[str, float]:
        """Seconds of a stage in steps, and in refreshes: dev measures, and encoding and indexing documents that stay, included."""
        spent = self.seconds_spent(stage)
        return {"train seconds": round(spent["step"], 1), "refresh seconds": round(spent["refresh"] + spent["documents"], 1)}

    def seconds_spent(self, stage: str) -> dict[str, float]:
        """Those of a stage by event, each step counted once however often resumed."""
        records = [r for r in read_json_lines(self.run.metrics) if r.get("stage") == stage]
        spent = {event: sum(r["seconds"] for r in records if r["event"] == event) for event in ("step", "refresh")}
        return {**spent, "documents": sum(sum(r["parts"].values()) for r in records if r["event"] == "documents")}

    def forget_after(self, stage: str, step: int, keep: Collection[str] = ()) -> None:
        """Drop what a resumed run will do again: records of `stage` from `step` on, but for decisions of the events in `keep`."""
        for path, kept_events in ((self.run.metrics, ()), (self.run.decisions, keep)):
            records = read_json_lines(path)
            kept = [r for r in records if r.get("stage") != stage or r["step"] < step or r["event"] in kept_events]
            if kept != records:
                write_whole(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in kept))
