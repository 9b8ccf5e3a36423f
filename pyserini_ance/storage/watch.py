"""Watch: whether the process that holds a post is alive, as one observer sees it who looks again and again."""

import time
from datetime import datetime
from typing import Any, Protocol

from pyserini_ance.storage.owner import lives

LOST_SECONDS = 60  # 12 heartbeats; an NFS client may show an old file for 3 to 30 s


class Readable(Protocol):
    def read(self) -> dict[str, Any] | None: ...


class Watch:
    """A holder is alive as long as its heartbeat rises, and one on this host as long as it is in the process table.

    Time is the observer's own monotonic clock: wall clocks of hosts differ, and jump.
    """

    def __init__(self, post: Readable):
        self.post = post
        self.record: dict[str, Any] | None = None  # as last seen
        self.heard = False  # the record has changed under our eyes
        self._changed: float | None = None

    def alive(self) -> bool:
        """False: no file, its status is not running, its process is gone, or its heartbeat was unchanged for LOST_SECONDS."""
        self._look()
        if self.record is None or self.record["status"] != "running":
            return False
        return lives(self.record) is not False and self.unchanged_seconds < LOST_SECONDS

    @property
    def undecided(self) -> bool:
        """Whether `alive` only supposes: a process of another host of which no new heartbeat was seen yet."""
        return self.record is not None and lives(self.record) is None and not self.heard

    @property
    def unchanged_seconds(self) -> float:
        return 0.0 if self._changed is None else time.monotonic() - self._changed

    def describe(self) -> str:
        """`process 123 on host x, at work on <where>, last heartbeat 2026-11-20 14:03:22, unchanged for 75 s`."""
        self._look()
        if self.record is None:
            return "no process"
        doing = f"at work on {self.record['where']}" if self.record["status"] == "running" else f"{self.record['status']} at {self.record['where']}"
        heartbeat = f"last heartbeat {clock(self.record.get('time'))}, unchanged for {self.unchanged_seconds:.0f} s"
        return f"{named(self.record)}, {doing}, {heartbeat}"

    def _look(self) -> None:
        before = time.monotonic()
        record = self.post.read()
        after = time.monotonic()
        if self._changed is None or _sign(record) != _sign(self.record):
            self.heard = self._changed is not None
            self._changed = after
        else:
            self._changed += after - before  # while a file server hangs we wait, and the holder waits as well
        self.record = record


def named(record: dict[str, Any]) -> str:
    return f"process {record['pid']} on host {record['host']}"


def clock(seconds: Any) -> str:
    """Another host's wall clock, for people to read: it may say anything."""
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
    except (TypeError, ValueError, OverflowError, OSError):
        return f"at an impossible time ({seconds!r})"


def _sign(record: dict[str, Any] | None) -> tuple | None:
    return record and tuple(record.get(key) for key in ("term", "pid", "host", "started", "beat"))
