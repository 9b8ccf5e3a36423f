"""Post: a role in a run directory that one process holds at a time, with a sign of life."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pyserini_ance.storage.election import Election, term_of
from pyserini_ance.storage.files import write_json
from pyserini_ance.storage.owner import process_of, this_process
from pyserini_ance.storage.watch import named

Status = Literal["running", "stopped", "failed", "finished"]
BEAT_SECONDS = 5
log = logging.getLogger(__name__)


class Post:
    """A JSON file that says who holds the role, what it does, and a `beat` that rises with every writing.

    A holder that finds a later term in the file has lost the post and writes no more; one that finds an earlier term, of
    a process that was suspended in mid-writing, writes its own again.
    """

    def __init__(self, path: Path, layout: int = 1):
        self.path, self.layout = path, layout
        self._election = Election(path)
        self._lock = threading.Lock()
        self._holder: dict[str, Any] | None = None  # we, once we took the post
        self._doing: dict[str, Any] = {}
        self._lost: str | None = None

    def read(self) -> dict[str, Any] | None:
        """What the file says; None without one. Raises RuntimeError when it is damaged or of another version."""
        record = self._election.read()
        if record is not None and record.get("layout") != self.layout:
            raise RuntimeError(
                f"{self.path} was written with layout {record.get('layout')}; this version reads {self.layout}. "
                f"Use the version that wrote it, or start again in another folder."
            )
        return record

    def vacant(self) -> dict[str, Any] | None:
        """What a holder that is gone has left, None without a file; its version does not matter.

        Raises Held when another living process has the post. A process of another host is watched for up to LOST_SECONDS.
        """
        return self._election.vacant()

    def take(self, where: str, **about: Any) -> dict[str, Any] | None:
        """Make the post ours, as yet without a heartbeat; returns and raises what `vacant` does."""
        term, before = self._election.win()
        with self._lock:
            beat = before.get("beat", 0) if before else 0
            self._holder = {**about, **this_process(), "term": term, "since": time.time(), "beat": beat}
            self._lost = None
            try:
                self._write({"status": "running", "where": where})
            except BaseException:
                self._holder = None  # the term is not ours when the file does not say so
                self._election.release(term)
                raise
        self._election.forget_before(term)
        return before

    @contextmanager
    def hold(self, where: str, **about: Any) -> Iterator[None]:
        """Take the post, if `take` has not, and let a thread show that we live. At the end say how it ended, if nobody has.

        Raises Held as `vacant` does, RuntimeError when the file is of another version.
        """
        found = self.read()
        if found and found["status"] == "running" and self._is_ours(found):
            self._holder |= about
            self.mark("running", where)
        else:
            self.take(where, **about)
        end = threading.Event()
        heart = threading.Thread(target=self._beat, args=(end,), name=f"heartbeat in {self.path.name}", daemon=True)
        heart.start()
        try:
            yield
        except BaseException as error:
            self._leave("failed" if isinstance(error, Exception) else "stopped", reason=str(error) or type(error).__name__)
            raise
        else:
            self._leave("finished")
        finally:
            end.set()
            heart.join(BEAT_SECONDS)

    def mark(self, status: Status, where: str, **more: Any) -> None:
        """Record what the holder is doing; who has not taken the post does so now. Raises RuntimeError when we have lost it.

        With any status but `running` the post is free from then on.
        """
        if not self._took_it() or (status == "running" and self._doing["status"] != "running"):
            self.take(where)
        with self._lock:
            self._write({"status": status, "where": where, **more})

    @property
    def where(self) -> str:
        """What this process, which took the post, was last said to be at work on, whatever has become of the file."""
        return self._doing["where"]

    @property
    def lost(self) -> bool:
        """Whether another process has been seen to have taken the post from us."""
        return self._lost is not None

    def _took_it(self) -> bool:
        return self._holder is not None and self._holder["pid"] == os.getpid()  # a fork of the holder is not the holder

    def _is_ours(self, found: dict[str, Any]) -> bool:
        # Not compared with this_process(): the host may have got another name meanwhile.
        return self._took_it() and term_of(found) == self._holder["term"] and process_of(found) == process_of(self._holder)

    def _beat(self, end: threading.Event) -> None:
        failing = False
        while not end.wait(BEAT_SECONDS):
            try:
                with self._lock:
                    if self._doing["status"] == "running":
                        self._write(self._doing)
                failing = False
            except OSError as error:  # a full disk, a file server that is away: a later beat may succeed
                if not failing:
                    log.warning("no heartbeat for now: %s", error)
                failing = True
            except RuntimeError as error:
                log.error("no more heartbeats: %s", error)
                return

    def _leave(self, status: Status, **more: Any) -> None:
        if self._doing["status"] != "running" or self._lost or not self._took_it():
            return
        try:
            self.mark(status, self._doing["where"], **more)
        except (OSError, RuntimeError) as error:
            log.error("could not record the end: %s", error)

    def _write(self, doing: dict[str, Any]) -> None:
        """Under the lock. The look before every writing is what tells a process that it has lost the post."""
        self._lost = self._lost or self._loss()
        if self._lost:
            raise RuntimeError(self._lost)
        self._doing = doing
        self._holder["beat"] += 1
        write_json(self.path, {"layout": self.layout, **doing, **self._holder, "time": time.time()})
        if doing["status"] != "running":
            self._election.release(self._holder["term"])

    def _loss(self) -> str | None:
        try:
            found = self._election.read()
        except RuntimeError:  # damaged by whatever: we know better what it should say
            return None
        if term_of(found) < self._holder["term"] or self._is_ours(found):
            return None
        return f"{self.path}: {named(found)} has taken over from this process, which was out of reach; what it does here no longer counts"
