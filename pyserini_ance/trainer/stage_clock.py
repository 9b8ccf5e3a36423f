"""How long the rest of a stage will take, with its refreshes and dev evaluations."""

from collections.abc import Collection


class StageClock:
    """Estimates from the steps and refreshes so far; `refresh_steps` are the steps before which there is one.

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
