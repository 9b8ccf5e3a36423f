"""Wait for other processes and threads."""

import os
import time
from collections.abc import Callable


def until(happened: Callable[[], object], seconds: float = 30) -> None:
    """Fail after `seconds`, which allow for a busy machine."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"it did not happen within {seconds} s"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process, perhaps a child that was waited for, still runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
