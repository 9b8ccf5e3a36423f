"""The two records of a run: metrics of every step, and decisions that later steps depend on."""

import json
from typing import Any

from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import append_json_line, read_json_lines, write_whole


class RunLog:
    """Appends to `metrics.jsonl` and `decisions.jsonl`. Every record has an `event`, and in training a `stage` and a `step`."""

    def __init__(self, run: RunDir):
        self.run = run

    def metric(self, event: str, **values: Any) -> None:
        append_json_line(self.run.metrics, {"event": event, **values})

    def decide(self, event: str, **values: Any) -> None:
        """On disk before this returns."""
        append_json_line(self.run.decisions, {"event": event, **values}, durable=True)

    def decisions(self, event: str) -> list[dict]:
        return [record for record in read_json_lines(self.run.decisions) if record["event"] == event]

    def stage_seconds(self, stage: str) -> dict[str, float]:
        """Seconds of a stage in steps and in refreshes (dev measures included), each step counted once however often resumed."""
        records = [r for r in read_json_lines(self.run.metrics) if r.get("stage") == stage]
        columns = {"train seconds": "step", "refresh seconds": "refresh"}
        return {name: round(sum(r["seconds"] for r in records if r["event"] == event), 1) for name, event in columns.items()}

    def forget_after(self, stage: str, step: int) -> None:
        """Drop what a resumed run will do again: records of `stage` from `step` on."""
        for path in (self.run.metrics, self.run.decisions):
            kept = [r for r in read_json_lines(path) if r.get("stage") != stage or r["step"] < step]
            write_whole(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in kept))
