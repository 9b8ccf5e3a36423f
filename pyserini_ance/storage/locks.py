"""Locks of the kernel (`flock`): shared for readers, exclusive for writers and roles, released by death.

A lock is a file that exists while somebody holds it, and after a kill until the next holder. It names the
process that holds it exclusively, for messages alone: nothing depends on process ids, host names or clocks.
Programs that a holder starts do not inherit its locks, and processes that it forks close them at once, so
that a lock ends with its holder whatever its children do.
"""

import errno
import fcntl
import json
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

POLL_SECONDS = 0.02
# A process that looks whether a lock is free holds it for microseconds, and the kernel takes a moment to end
# a process that was killed.
PATIENCE_SECONDS = 1.0
log = logging.getLogger(__name__)


class LockHeld(RuntimeError):
    """Another process holds the lock, or another thread or callback of this one."""


class _LockFile:
    """An open lock file. Raises OSError on a file system without locks."""

    def __init__(self, path: Path, flags: int):
        self.path = path
        with _mutex:  # no fork in between
            self.descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
            _open.add(self)

    def acquire(self, mode: int) -> bool:
        """Acquire the lock; false when another holder does not admit it."""
        try:
            fcntl.flock(self.descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise _no_locks(self.path.parent, str(error.strerror)) from error
        return True

    def is_at_path(self) -> bool:
        """Whether the path is still this file: the last holder removes it."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), os.stat(self.path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        with _mutex:
            if self in _open:
                _open.discard(self)
                os.close(self.descriptor)

    def release(self) -> None:
        """Remove the file with its last holder, who alone gets the lock exclusively, and close it."""
        if self in _open:
            with suppress(OSError):
                if self.acquire(fcntl.LOCK_EX) and self.is_at_path():
                    self.path.unlink()
            self.close()


_open: set[_LockFile] = set()
_mutex = threading.Lock()


def _close_in_child() -> None:
    """A lock belongs to its open file, which a forked child shares: it would outlive its holder there."""
    for file in _open:
        os.close(file.descriptor)
    _open.clear()
    _mutex.release()


os.register_at_fork(before=_mutex.acquire, after_in_parent=_mutex.release, after_in_child=_close_in_child)


@contextmanager
def locked(
    path: Path, shared: bool = False, patience_seconds: float = math.inf, what: str = ""
) -> Iterator[None]:
    """Hold the lock `path` while the block runs; its folder must exist.

    `what` names in messages what the lock stands for. Raises LockHeld when others hold it for
    `patience_seconds`, OSError on a file system without locks.
    """
    what = what or str(path)
    file = _acquire(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, patience_seconds, what)
    try:
        if not shared:
            record = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
            with suppress(OSError):  # on a full disk, which the holder may be about to clear
                os.ftruncate(file.descriptor, 0)
                os.pwrite(file.descriptor, json.dumps(record).encode(), 0)
        yield
    finally:
        file.release()


def _acquire(path: Path, mode: int, patience_seconds: float, what: str) -> _LockFile:
    start, is_logged = time.monotonic(), False
    while True:
        file = _LockFile(path, os.O_RDWR | os.O_CREAT)
        try:
            if file.acquire(mode) and file.is_at_path():
                return file
        except BaseException:
            file.close()
            raise
        file.close()
        waited = time.monotonic() - start
        if waited >= patience_seconds:
            raise LockHeld(f"{what} is in use by {holder(path)}; stop it first, or wait until it ends")
        if waited > PATIENCE_SECONDS and not is_logged:
            log.info("waiting for %s, which %s is writing", what, holder(path).partition(" since ")[0])
            is_logged = True
        time.sleep(POLL_SECONDS)


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock exclusively."""
    try:
        file = _LockFile(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not file.acquire(fcntl.LOCK_SH)
    finally:
        file.close()


def is_own(path: Path) -> bool:
    """Whether this process has a lock on the file that is there now."""
    return any(file.path == path and file.is_at_path() for file in tuple(_open))


def holder(path: Path) -> str:
    """Name who holds a lock: `process 123 on host x since 2026-11-25 20:00:00`."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        since = datetime.fromtimestamp(record["since"]).strftime("%Y-%m-%d %H:%M:%S")
        return f"process {record['pid']} on host {record['host']} since {since}"
    except (OSError, ValueError, LookupError, TypeError):  # released just now, or only shared
        return "another process"


def check_file_system(folder: Path) -> None:
    """Raise OSError when the file system of `folder`, which need not exist yet, has no working locks."""
    existing = next(parent for parent in [folder.absolute(), *folder.absolute().parents] if parent.is_dir())
    probe = existing / ".probe.held"
    with locked(probe):
        if not is_held(probe):
            raise _no_locks(existing, "two processes can hold the same one")


def _no_locks(folder: Path, reason: str) -> OSError:
    cure = "use one on which flock works (Lustre: mounted with -o flock)"
    return OSError(errno.ENOLCK, f"this file system has no locks ({reason}); {cure}", str(folder))
