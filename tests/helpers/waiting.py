"""Wait for other processes and threads."""

import time
from collections.abc import Callable


def until(happened: Callable[[], object], seconds: float = 30) -> None:
    """Fail after `seconds`, which allow for a busy machine."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"it did not happen within {seconds} s"
        time.sleep(0.01)
