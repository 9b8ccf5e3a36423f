"""What a grid logs: which of its runs begin and end, and how long the others will take."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pyserini_ance.storage.locks import LockHeld

log = logging.getLogger(__name__)


class Progress:
    """Logs the progress of a grid, and the time that the remaining runs will take, from the runs trained so
    far.

    released: for each run since when its last holder had its lock; 0 if it had it when this command started.
    jobs: how many runs the command trains at once; what one of them has said, no other repeats.
    """

    def __init__(self, released: Mapping[str, float], jobs: int = 1):
        self.released, self.jobs = released, jobs
        self._numbers = {name: number for number, name in enumerate(released, start=1)}
        self.seconds: list[float] = []
        self._skipped: set[str] = set()
        self._start = 0.0

    def skip(self, name: str, held: LockHeld) -> None:
        """Another process works on the run."""
        if name not in self._skipped and self.jobs == 1:
            log.info("grid: %s is left to another process: %s", name, held)
        self._skipped.add(name)

    def was_held_since(self, name: str, last: dict[str, Any] | None) -> bool:
        """Whether another process has held the run's lock since this one started; `last` is the lock's last
        holder."""
        return last is not None and last["since"] != self.released[name]

    def keep(self, name: str, held_elsewhere: bool) -> None:
        """The run had finished; `held_elsewhere`: another process has worked on it since the start."""
        if not held_elsewhere or self.jobs == 1:
            self._log(name, "had already finished")

    def begin(self, name: str) -> None:
        self._start = time.perf_counter()
        self._log(name, "begins")

    def finish(self, name: str) -> None:
        self.seconds.append(time.perf_counter() - self._start)
        self._log(name, f"has finished in {self.seconds[-1]:.0f} seconds")

    def fail(self, name: str, error: Exception, elsewhere: bool = False) -> None:
        """The run has failed, here or in another process."""
        if not elsewhere or self.jobs == 1:
            log.error("%s has failed: %s", self._place(name), error)

    def estimate(self, statuses: Sequence[str]) -> None:
        """Log how long the runs that wait will take, with the processes that work now; `statuses` are those
        of all runs."""
        waiting, elsewhere = statuses.count("waiting"), statuses.count("running")
        if waiting and self.seconds:
            mean = sum(self.seconds) / len(self.seconds)
            minutes = (waiting + elsewhere / 2) * mean / (elsewhere + 1) / 60
            log.info("grid: %d of %d runs wait; about %.1f minutes left", waiting, len(statuses), minutes)

    def _log(self, name: str, what: str) -> None:
        log.info("%s %s", self._place(name), what)

    def _place(self, name: str) -> str:
        return f"grid, {self._numbers[name]} of {len(self._numbers)}: {name}"
