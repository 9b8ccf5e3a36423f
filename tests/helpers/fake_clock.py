"""A clock that tests advance: waiting takes no time, and a stalled machine changes nothing."""

import heapq
import itertools
import time
from collections.abc import Callable


class Clock:
    """Replaces a module's `time`: `sleep` advances the time and calls the functions that become due."""

    def __init__(self):
        self.now = 1000.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            self.now, _, act = heapq.heappop(self._due)
            act()
        self.now = end

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """Call `act` when `seconds` from now have passed."""
        heapq.heappush(self._due, (self.now + seconds, next(self._numbers), act))

    def __getattr__(self, name: str):
        return getattr(time, name)  # the time of day is real
