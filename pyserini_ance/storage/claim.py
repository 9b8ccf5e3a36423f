"""The claim on a folder that is being made: who makes it, and the maker's signs of life."""

import itertools
import os
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyserini_ance.storage import liveness
from pyserini_ance.storage.files import read_json_object
from pyserini_ance.storage.liveness import is_alive, process_name, process_of, this_process

CLAIM = "claim.json"
BEAT_SECONDS = 5
_counter = itertools.count()
_held: set[int] = set()  # the numbers of this process's claims whose threads are at work


class ClaimLost(RuntimeError):
    """The folder is claimed by a process of another host that gives no sign of life."""


def owner_of(folder: Path) -> dict[str, Any] | None:
    """The process that has claimed the folder; None without a claim."""
    return read_json_object(folder / CLAIM)


@contextmanager
def new_claim() -> Iterator[dict[str, Any]]:
    """A claim of this process, to be written into a folder; it counts as held until the block ends."""
    number = next(_counter)
    _held.add(number)
    try:
        yield {**this_process(), "number": number, "time": time.time()}
    finally:
        _held.discard(number)


def is_held(claim: dict[str, Any]) -> bool:
    """Whether the thread or process that made the claim may be at work: those of other hosts always may."""
    if process_of(claim) == this_process():
        return claim.get("number") in _held
    return is_alive(claim) is not False


@contextmanager
def touching(claim: Path) -> Iterator[None]:
    """Touch the claim while the block runs, so that processes of other hosts see that this one lives."""
    end = threading.Event()

    def touch() -> None:
        while not end.wait(BEAT_SECONDS):
            with suppress(OSError):  # removed at the commit, or the file server is away for a while
                os.utime(claim)

    thread = threading.Thread(target=touch, name=f"claim of {claim.parent.name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


class ClaimMonitor:
    """A claim of another host, as seen by one observer that looks repeatedly, by its own monotonic clock."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._sign: tuple[dict[str, Any] | None, int] | None = None
        self._changed_at = 0.0

    def check(self) -> None:
        """Raise ClaimLost when the claim has not been touched for LOST_SECONDS."""
        sign = self._look()
        if sign != self._sign:
            self._sign, self._changed_at = sign, time.monotonic()
        owner = sign and sign[0]
        silence = time.monotonic() - self._changed_at
        if not owner or is_alive(owner) is not None or silence < liveness.LOST_SECONDS:
            return
        raise ClaimLost(
            f"{self.folder} is being written by {process_name(owner)}, which has given no sign of life for "
            f"{silence:.0f} seconds. If that process has ended, remove what it left and start again: "
            f"rm -r {shlex.quote(str(self.folder))}\n(`train --resume` does so for the processes of its run)"
        )

    def _look(self) -> tuple[dict[str, Any] | None, int] | None:
        path = self.folder / CLAIM
        try:
            with path.open("rb") as file:  # opening makes an NFS client ask for the present time of the file
                return owner_of(self.folder), os.fstat(file.fileno()).st_mtime_ns
        except FileNotFoundError:
            return None
