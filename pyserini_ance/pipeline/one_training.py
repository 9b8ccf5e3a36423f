"""One training at a time in a process.

Two would share what belongs to the process and change each other's weights: torch's random generators,
accelerate's state (precision, device), and torch's number of threads.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_lock = threading.Lock()
_folder: Path | None = None  # of the run that this process trains


@contextmanager
def only_training(folder: Path) -> Iterator[None]:
    """Train the run in `folder`, and what it requires, inside the block.

    Raises RuntimeError if this process trains already: in another thread, or around a callback.
    """
    global _folder
    if not _lock.acquire(blocking=False):
        raise RuntimeError(
            f"{folder} is not trained: this process trains {_folder} already, and two trainings in one "
            "process would change each other's weights. Wait until it ends, start another process, or train "
            "several runs with `pyserini-ance train --grid ... --jobs N`"
        )
    try:
        _folder = folder
        yield
    finally:
        _lock.release()
