"""Waiting for what other processes and threads do."""

import time
from collections.abc import Callable


def until(happened: Callable[[], object], seconds: float = 30) -> None:
    """Fails after so many seconds, which are for a busy machine: a quiet one needs a moment."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"it did not happen within {seconds} s"
        time.sleep(0.01)
