"""Role: a lock that one process holds at a time, and a JSON file that tells people what its holder does."""

import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pyserini_ance.storage.error_text import text_of
from pyserini_ance.storage.files import beside, read_json_object, write_json
from pyserini_ance.storage.locks import PATIENCE_SECONDS, is_held, is_own, locked

Status = Literal["running", "stopped", "failed", "finished"]
log = logging.getLogger(__name__)


class Role:
    """A role, such as the trainer of a run directory. `path` is the JSON file; its folder must exist.

    The file has `status`, `where` (what the holder is doing, or did last), `pid`, `host`, `since` and `time`,
    after an error `reason`. It is no lock: a holder that was killed leaves the status `running`.
    """

    def __init__(self, path: Path, layout: int = 1):
        self.path, self.layout = path, layout
        self._lock, self._what = beside(path, "held"), f"{path.parent} ({path.name})"
        self._since, self._status = time.time(), "stopped"
        self.where = ""  # what this process recorded last

    def read(self, any_layout: bool = False) -> dict[str, Any] | None:
        """Read the file; None when it is missing.

        Raises RuntimeError when it is damaged, or unless `any_layout` of another layout.
        """
        record = read_json_object(self.path)
        if record is None:
            return None
        if record.get("layout") != self.layout and not any_layout:
            raise RuntimeError(
                f"{self.path} has layout {record.get('layout')}, this version reads layout {self.layout}; "
                "train again, or use the version that wrote it (layout 3: commit 6a05e4e)"
            )
        return record

    @property
    def is_held(self) -> bool:
        return is_held(self._lock)

    @property
    def is_own(self) -> bool:
        """Whether this process holds it, in the folder that is there now."""
        return is_own(self._lock)

    def check_free(self) -> None:
        """Raise LockHeld when a living process, or another thread or callback of this one, holds the role."""
        if self.is_held:
            with locked(self._lock, shared=True, patience_seconds=PATIENCE_SECONDS, what=self._what):
                pass

    @contextmanager
    def held(self, where: str = "") -> Iterator[None]:
        """Hold the role, and record at the end how it ended, unless the block has recorded that.

        With `where`, that the work begins is recorded, too.

        Raises LockHeld as `check_free` does.
        """
        with locked(self._lock, patience_seconds=PATIENCE_SECONDS, what=self._what):
            self._since, self._status = time.time(), "stopped"
            if where:
                self.mark("running", where)
            with self.recording_the_end():
                yield

    @contextmanager
    def recording_the_end(self) -> Iterator[None]:
        """Record how the block ended, unless it has recorded that, or nothing at all.

        On a full disk the reason may be lost, but not where.
        """
        try:
            yield
        except BaseException as error:
            new = {"needs_new_recipe": True} if getattr(error, "needs_new_recipe", False) else {}
            ended: Status = "failed" if isinstance(error, Exception) else "stopped"
            self._record_end(ended, reason=text_of(error), **new)
            raise
        self._record_end("finished")

    def mark(self, status: Status, where: str, **values: Any) -> None:
        self._status, self.where = status, where
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": self._since}
        record = {"layout": self.layout, "status": status, "where": where, **values, **holder}
        write_json(self.path, {**record, "time": time.time()})

    def _record_end(self, status: Status, **values: Any) -> None:
        if self._status == "running":
            try:
                if self.is_own:
                    self.mark(status, self.where, **values)
            except OSError as error:
                log.error("could not record the end: %s", error)

    def describe(self) -> str:
        """One line: `process 123 on host x, at work on encode`, `process 123 on host x, failed at encode`."""
        record = self.read()
        if record is None:
            return "no process"
        running = "at work on" if self.is_held else "died at"
        doing = running if record["status"] == "running" else f"{record['status']} at"
        return f"process {record['pid']} on host {record['host']}, {doing} {record['where']}"
