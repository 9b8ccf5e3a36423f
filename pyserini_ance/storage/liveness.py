"""Liveness of processes: which process wrote a file, whether it is alive, and temporary names with its id."""

import functools
import hashlib
import itertools
import logging
import os
import re
import shutil
import socket
import time
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

LOST_SECONDS = 60  # 12 heartbeats; an NFS client may show an old file for 3 to 30 s
REMOVAL = "removal"
# The host is part of the name: on a shared file system two hosts use the same process numbers, and neither
# can look up the other's.
UNFINISHED = re.compile(rf"\..+\.(?P<pid>\d+)@(?P<host>.+)\.(tmp|claim|gone|{REMOVAL})", re.DOTALL)
LEASE = re.compile(r"\..+\.lease\.(?P<host>.+)\.(?P<pid>\d+)\.\d+", re.DOTALL)
_counter = itertools.count()
log = logging.getLogger(__name__)


def this_process() -> dict[str, Any]:
    """The id of this process: `pid`, `host`, `process_table`, and `started`, which tells it from a later
    process with the same pid."""
    pid = os.getpid()
    where = {"host": socket.gethostname(), "process_table": process_table()}
    return {"pid": pid, **where, "started": _start_ticks(pid)}


@functools.cache
def process_table() -> str:
    """An id of the process table that this process is in, outside of which its pid means nothing.

    Containers and machines may share a host name; the boot id and the pid namespace differ.
    """
    boot, namespace = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    known = (
        f"{boot.read_text() if boot.exists() else ''} {os.readlink(namespace) if namespace.exists() else ''}"
    )
    return hashlib.sha256(known.encode()).hexdigest()[:8]


def host_name(record: dict[str, Any] | None = None) -> str:
    """The host and process table of a process, by default this one, as part of a file's name."""
    record = record or {"host": socket.gethostname(), "process_table": process_table()}
    return f"{record['host']}+{record.get('process_table', '')}"


def process_of(record: dict[str, Any]) -> dict[str, Any]:
    """The id of the process that wrote a record, to compare with another's or with `this_process()`."""
    return {key: record.get(key) for key in ("pid", "host", "process_table", "started")}


def process_name(record: dict[str, Any]) -> str:
    """`process 123 on host x`"""
    return f"process {record['pid']} on host {record['host']}"


def is_alive(record: dict[str, Any]) -> bool | None:
    """Whether the process that wrote `record` still runs.

    None when it ran on another host or in another container, or recorded no start.
    """
    if "started" not in record or "host" not in record or host_name(record) != host_name():
        return None
    return _start_ticks(record["pid"]) == record["started"]


def process_is_alive(pid: int) -> bool:
    """Whether a process of this host has this number: the one that was meant, or a later one."""
    return _start_ticks(pid) is not None


def _start_ticks(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None when there is none.

    A process that reuses the number started later.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    # Z, X: the process has ended, and its parent has not yet read its exit code.
    return None if fields[0] in "ZX" else int(fields[19])


def temp_path(path: Path, kind: str) -> Path:
    """A hidden name next to `path` that carries this process's id, and differs from call to call, because
    threads write the same files.

    `kind` says what it is for: `tmp` and `claim` prepare `path`, `removal` announces that it will be removed,
    and `gone` holds it before it is removed.
    """
    return path.with_name(f".{path.name}.{next(_counter)}.{os.getpid()}@{host_name()}.{kind}")


def creator_of(path: Path) -> tuple[str, int] | None:
    """The `host_name` and the pid in a hidden name that `temp_path` or a lease made; None for any other."""
    match = UNFINISHED.fullmatch(path.name) or LEASE.fullmatch(path.name)
    return match and (match["host"], int(match["pid"]))


def remove_leftovers(folder: Path, dead: dict[str, Any] | None = None) -> None:
    """Remove unfinished files and leases of dead processes from `folder` and from its subfolders.

    Dead processes are those of this host that have ended, and `dead`, of any host, which the caller knows to
    have ended.
    """
    known_dead = dead and (host_name(dead), dead["pid"])
    for path in [*folder.glob(".*"), *folder.glob("*/.*")]:
        creator = creator_of(path)
        if creator and (
            creator == known_dead or (creator[0] == host_name() and not process_is_alive(creator[1]))
        ):
            host = creator[0].rpartition("+")[0]
            log.info("removing %s, left by process %d on host %s, which has ended", path, creator[1], host)
            remove(path)


def remove(path: Path) -> None:
    """Remove a file or a folder that is not needed; log a warning when it cannot be removed."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:  # on NFS a folder stays while a process of this host has one of its files open
        log.warning("%s is left over and can be removed by hand: %s", path, error)


class HasRecord(Protocol):
    """A lock file, whose record names its holder."""

    def read(self) -> dict[str, Any] | None: ...


class HeartbeatMonitor:
    """Whether the holder of a lock is alive, as seen by one observer that looks repeatedly.

    A holder is alive while its heartbeat rises; a holder on this host must also be in the process table. Time
    is measured by the observer's monotonic clock: wall clocks differ between hosts, and jump.
    """

    def __init__(self, lock: HasRecord):
        self.lock = lock
        self.record: dict[str, Any] | None = None  # as last seen
        self.heartbeat_seen = False  # the record has changed since the first look
        self._changed_at: float | None = None

    def alive(self) -> bool:
        """False when there is no record, its status is not `running`, or its process has ended or is lost.

        A process is lost when its heartbeat has not changed for LOST_SECONDS.
        """
        self._look()
        if self.record is None or self.record["status"] != "running":
            return False
        return is_alive(self.record) is not False and self.unchanged_seconds < LOST_SECONDS

    @property
    def is_uncertain(self) -> bool:
        """Whether `alive` is a guess: the process is on another host, and no new heartbeat was seen yet."""
        return self.record is not None and is_alive(self.record) is None and not self.heartbeat_seen

    @property
    def unchanged_seconds(self) -> float:
        """Seconds since the record was last seen to change."""
        return 0.0 if self._changed_at is None else time.monotonic() - self._changed_at

    def describe(self) -> str:
        """One line: `process 123 on host x, at work on encode, last heartbeat TIME, unchanged for 75 s`."""
        self._look()
        if self.record is None:
            return "no process"
        doing = (
            f"at work on {self.record['where']}"
            if self.record["status"] == "running"
            else f"{self.record['status']} at {self.record['where']}"
        )
        heartbeat = (
            f"last heartbeat {clock(self.record.get('time'))}, unchanged for {self.unchanged_seconds:.0f} s"
        )
        return f"{process_name(self.record)}, {doing}, {heartbeat}"

    def _look(self) -> None:
        before = time.monotonic()
        record = self.lock.read()
        after = time.monotonic()
        if self._changed_at is None or _heartbeat(record) != _heartbeat(self.record):
            self.heartbeat_seen = self._changed_at is not None
            self._changed_at = after
        else:
            self._changed_at += after - before  # while a file server hangs, the holder waits as well
        self.record = record


def clock(seconds: Any) -> str:
    """Format another host's wall clock for people; any value is accepted."""
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
    except (TypeError, ValueError, OverflowError, OSError):
        return f"at an impossible time ({seconds!r})"


def _heartbeat(record: dict[str, Any] | None) -> tuple[Any, ...] | None:
    if record is None:
        return None
    return tuple(record.get(key) for key in ("term", "pid", "host", "started", "beat"))
