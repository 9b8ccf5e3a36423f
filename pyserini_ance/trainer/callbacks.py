"""What a stage tells while it trains: callbacks of users, and how long the rest will take."""

from collections.abc import Collection
from typing import Any

from pyserini_ance.runs.generation import Generation


class TrainerCallback:
    """Base class whose methods do nothing; override those that are needed, as in transformers.

    The methods are called on the main process only. An exception in one of them stops training; the run can
    be resumed. A resumed run calls them again for the steps that it repeats.
    """

    def on_step_end(self, stage: str, step: int, losses: dict[str, float], metrics: dict[str, Any]) -> None:
        """Called after optimizer step `step` (from 0).

        `losses` are the unweighted means of the terms over the batch. `metrics` are the other values of the
        step's record in `metrics.jsonl`: `loss` (the weighted sum), `grad_norm` (before clipping),
        `learning_rate`, `seconds`, the measures of live searches, and `false_negatives`, the number of pairs
        that each term's `false_negative_margin` ignored.
        """

    def on_refresh(self, stage: str, step: int, generation: Generation) -> None:
        """Called when new tables of negatives are adopted before step `step`.

        `generation.step` is the step of the checkpoint that they were mined with.
        """

    def on_dev_measure(self, stage: str, step: int, measure: str, value: float) -> None:
        """Called when the dev score of the checkpoint before step `step` is known.

        `measure` is the name in ir-measures. With several dev splits, `value` is the mean over them.
        """


class StageClock:
    """How long the rest of a stage will take, with its refreshes and dev evaluations.

    Estimates from the steps and refreshes so far; `refresh_steps` are the steps before which there is one.

    Seconds before other steps, waiting for a refresher, count as those of the refreshes.
    """

    def __init__(self, first_step: int, steps: int, refresh_steps: Collection[int]):
        self.step, self.steps, self.refresh_steps = first_step, steps, sorted(refresh_steps)
        self.steps_done = self.refreshes_done = 0
        self.step_seconds = self.refresh_seconds = 0.0

    def refreshed(self, step: int, seconds: float) -> None:
        """The work before step `step` has taken `seconds`."""
        self.refreshes_done += step in self.refresh_steps
        self.refresh_seconds += seconds

    def stepped(self, step: int, seconds: float) -> None:
        self.step, self.steps_done = step + 1, self.steps_done + 1
        self.step_seconds += seconds

    def seconds_left(self) -> float | None:
        """Seconds to the end of the stage; None before the first step."""
        if not self.steps_done:
            return None
        refreshes = sum(step >= self.step for step in self.refresh_steps)
        step_seconds = (self.steps - self.step) * self.step_seconds / self.steps_done
        return step_seconds + refreshes * self.refresh_seconds / max(1, self.refreshes_done)
