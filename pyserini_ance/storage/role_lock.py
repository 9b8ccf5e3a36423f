"""RoleLock: a role in a run directory, which one living process holds at a time, with a heartbeat."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pyserini_ance.storage.error_text import text_of
from pyserini_ance.storage.files import write_json
from pyserini_ance.storage.liveness import process_name, process_of, this_process
from pyserini_ance.storage.lock_file import LockFile, fencing_token

log = logging.getLogger(__name__)
Status = Literal["running", "stopped", "failed", "finished"]
BEAT_SECONDS = 5


def _other_version(path: Path, layout: Any, own: int) -> str:
    when = "an earlier" if isinstance(layout, int) and layout < own else "another"
    return (
        f"{path.parent} was written by {when} version (layout {layout} in {path.name}), "
        f"and this version (layout {own}) does not read it; train again, or use that version"
    )


class RoleLock:
    """A JSON file with the holder's process id, what it is doing, and a `beat` that rises with every write.

    A holder that reads a later fencing token in the file has lost the lock and writes no more. A holder that
    reads an earlier token, written by a process that was suspended in the middle of a write, writes its own
    record again.
    """

    def __init__(self, path: Path, layout: int = 1):
        self.path, self.layout = path, layout
        self._lock_file = LockFile(path)
        self._mutex = threading.Lock()
        self._holder: dict[str, Any] = {}  # this process's record, once it has acquired the lock
        self._doing: dict[str, Any] = {}
        self._lost_to: str | None = None

    def read(self) -> dict[str, Any] | None:
        """Read the file; None when it is missing.

        Raises RuntimeError when it is damaged or of another version.
        """
        record = self._lock_file.read()
        if record is not None and record.get("layout") != self.layout:
            raise RuntimeError(_other_version(self.path, record.get("layout"), self.layout))
        return record

    def check_free(self) -> dict[str, Any] | None:
        """As `LockFile.check_free`, for a record of whatever version."""
        return self._lock_file.check_free()

    def acquire(self, where: str, **values: Any) -> dict[str, Any] | None:
        """Acquire the lock, without a heartbeat yet.

        `values` go into the record. Returns and raises as `check_free`.
        """
        token, before = self._lock_file.acquire()
        with self._mutex:
            beat = before.get("beat", 0) if before else 0
            self._holder = {**values, **this_process(), "term": token, "since": time.time(), "beat": beat}
            self._lost_to = None
            try:
                self._write({"status": "running", "where": where})
            except BaseException:
                self._holder = {}  # the lock is not held when the file does not say so
                self._lock_file.release(token)
                raise
        self._lock_file.remove_claims_before(token)
        return before

    @contextmanager
    def held(self, where: str, **values: Any) -> Iterator[None]:
        """Hold the lock with a heartbeat thread, and record at the end how the block ended.

        The lock is acquired here unless `acquire` has done so.

        An end that was recorded inside the block stays. Raises LockHeld as `check_free` does, RuntimeError
        when the file is of another version.
        """
        record = self.read()
        if record and record["status"] == "running" and self._is_own(record):
            self._holder |= values
            self.mark("running", where)
        else:
            self.acquire(where, **values)
        end = threading.Event()
        heartbeat = threading.Thread(
            target=self._beat, args=(end,), name=f"heartbeat in {self.path.name}", daemon=True
        )
        heartbeat.start()
        with self._lock_file.held():
            try:
                yield
            except BaseException as error:
                needs_new_recipe = getattr(error, "needs_new_recipe", False)
                self._record_end(
                    "failed" if isinstance(error, Exception) else "stopped",
                    reason=text_of(error),
                    **({"needs_new_recipe": True} if needs_new_recipe else {}),
                )
                raise
            else:
                self._record_end("finished")
            finally:
                end.set()
                heartbeat.join(BEAT_SECONDS)

    def mark(self, status: Status, where: str, **values: Any) -> None:
        """Record what the holder is doing, and acquire the lock first if this process has not.

        Any status but `running` frees the lock. Raises RuntimeError when another process has taken the lock
        over.
        """
        if not self._has_acquired() or (status == "running" and self._doing["status"] != "running"):
            self.acquire(where)
        with self._mutex:
            self._write({"status": status, "where": where, **values})

    @property
    def where(self) -> str:
        """The work that this process last recorded, whatever the file says now."""
        return self._doing["where"]

    @property
    def lost(self) -> bool:
        """Whether another process was seen to have taken the lock over."""
        return self._lost_to is not None

    def _has_acquired(self) -> bool:
        # A fork of the holder is not the holder.
        return bool(self._holder) and self._holder["pid"] == os.getpid()

    def _is_own(self, record: dict[str, Any]) -> bool:
        # Not compared with this_process(): the host may have been renamed in the meantime.
        return (
            self._has_acquired()
            and fencing_token(record) == self._holder["term"]
            and process_of(record) == process_of(self._holder)
        )

    def _beat(self, end: threading.Event) -> None:
        failing = False
        while not end.wait(BEAT_SECONDS):
            try:
                with self._mutex:
                    if self._doing["status"] == "running":
                        self._write(self._doing)
                failing = False
            except OSError as error:  # a full disk, an unreachable file server: a later heartbeat may succeed
                if not failing:
                    log.warning("no heartbeat for now: %s", error)
                failing = True
            except RuntimeError as error:
                log.error("no more heartbeats: %s", error)
                return

    def _record_end(self, status: Status, **values: Any) -> None:
        if self._doing["status"] != "running" or self._lost_to or not self._has_acquired():
            return
        try:
            self.mark(status, self._doing["where"], **values)
        except (OSError, RuntimeError) as error:
            log.error("could not record the end: %s", error)

    def _write(self, doing: dict[str, Any]) -> None:
        """Write the record; the caller holds the mutex.

        Reading the file first shows whether the lock was lost.
        """
        self._lost_to = self._lost_to or self._takeover()
        if self._lost_to:
            raise RuntimeError(self._lost_to)
        self._doing = doing
        self._holder["beat"] += 1
        write_json(self.path, {"layout": self.layout, **doing, **self._holder, "time": time.time()})
        if doing["status"] != "running":
            self._lock_file.release(self._holder["term"])

    def _takeover(self) -> str | None:
        try:
            record = self._lock_file.read()
        except RuntimeError:  # damaged: the next write repairs it
            return None
        if record is None or fencing_token(record) < self._holder["term"] or self._is_own(record):
            return None
        return (
            f"{self.path}: {process_name(record)} has taken over from this process, which was unreachable; "
            "what this process does here no longer counts"
        )
