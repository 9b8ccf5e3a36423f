"""LockFile: a lock that one living process holds at a time."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyserini_ance.storage import liveness
from pyserini_ance.storage.files import path_in_errors, read_json_object
from pyserini_ance.storage.liveness import is_alive, process_of, temp_path, this_process

POLL_SECONDS = 0.05
KEYS = {"status", "where", "pid", "host"}
_held: "set[LockFile]" = set()  # that this process holds with a heartbeat
log = logging.getLogger(__name__)


class LockHeld(RuntimeError):
    """Another living process holds the lock, or another thread or callback of this one."""


class LockFile:
    """A lock whose fencing token (`term` in the file) rises with every holder.

    A process claims a token by a link `.<file>.claim-<token>`, which only one process can make, and which
    stays while it holds the lock. A process that dies with its claim leaves a gap: the next process claims
    the next token, so no claim is ever broken. While a claim stays, no process is misled by what a suspended
    process may still write over the file.
    """

    def __init__(self, path: Path):
        self.path = path
        self._token: int | None = None  # of the last `acquire`

    def read(self) -> dict[str, Any] | None:
        """Read the file, whatever its version; None when it is missing.

        Raises RuntimeError when it is not a lock.
        """
        record = read_json_object(self.path)
        if record is not None and KEYS - record.keys():
            raise RuntimeError(
                f"{self.path} lacks {sorted(KEYS - record.keys())}, which say who holds the lock; "
                "restore or remove it"
            )
        return record

    def check_free(self) -> dict[str, Any] | None:
        """Return the record of the previous holder, None when there is no file.

        Raises LockHeld when another living process holds the lock, or another caller in this one. A holder
        on another host is observed for up to LOST_SECONDS.
        """
        monitor = liveness.HeartbeatMonitor(self)
        if monitor.alive() and monitor.record is not None and self._is_of_another(monitor.record):
            if monitor.is_uncertain:
                log.info(
                    "waiting up to %g s to see whether %s is alive: %s",
                    liveness.LOST_SECONDS,
                    liveness.process_name(monitor.record),
                    self.path,
                )
            while monitor.is_uncertain and monitor.alive():
                time.sleep(POLL_SECONDS)
            if monitor.alive():
                raise self._held_by(monitor.record)
        return monitor.record

    @contextmanager
    def held(self) -> Iterator[None]:
        """Refuse the lock to others in this process while the block runs.

        A lock that this process has acquired and left can be acquired again.
        """
        _held.add(self)
        try:
            yield
        finally:
            _held.discard(self)

    def acquire(self) -> tuple[int, dict[str, Any] | None]:
        """Return this process's fencing token and the previous holder's record; the caller writes the file.

        Raises LockHeld as `check_free` does.
        """
        while (token := self._claim_after(before := self.check_free())) is None:
            pass
        self._token = token
        return token, before

    def release(self, token: int) -> None:
        """Remove this process's claim, when it ends."""
        self._claim_path(token).unlink(missing_ok=True)

    def remove_claims_before(self, token: int) -> None:
        """Remove claims of dead processes, once the file holds a later token."""
        for claim in self.path.parent.glob(f".{self.path.name}.claim-*"):
            number = claim.name.rpartition("-")[2]
            if number.isdecimal() and int(number) < token:
                claim.unlink(missing_ok=True)

    def _is_of_another(self, record: dict[str, Any]) -> bool:
        """Whether the record is of another process, or of a holder in this one that is at work."""
        if process_of(record) != this_process():
            return True
        holders = [lock.path for lock in list(_held) if lock._token == fencing_token(record)]
        return self.path.resolve() in [path.resolve() for path in holders]

    def _claim_after(self, before: dict[str, Any] | None) -> int | None:
        """Claim the token after `before`; None when another process was faster and the caller must retry."""
        token = fencing_token(before) + 1
        while (rival := self._claim(token)) is not None:
            if not self._is_dead(rival, token, before):
                return None
            token += 1
        if self.read() == before:
            return token
        self.release(token)  # the claim was free because its holder has finished in the meantime
        return None

    def _claim(self, token: int) -> dict[str, Any] | None:
        """None when this process has the claim, else the process that has it ({} when just released)."""
        process = {**this_process(), "time": time.time_ns()}
        claim, written = self._claim_path(token), temp_path(self._claim_path(token), "tmp")
        try:
            with path_in_errors(claim):
                written.write_text(json.dumps(process), encoding="utf-8")
                claim.hardlink_to(written)
            return None
        except FileExistsError:
            rival = read_json_object(claim) or {}
            # Equal: NFS has repeated a request of this process whose answer was lost.
            return None if rival == process else rival
        finally:
            written.unlink(missing_ok=True)

    def _is_dead(self, rival: dict[str, Any], token: int, before: dict[str, Any] | None) -> bool:
        """Wait until the rival writes the file or gives up its claim (False), or is known to be dead (True).

        A rival on another host counts as dead after LOST_SECONDS. Raises LockHeld when a rival on this host
        lives and does not write.
        """
        end = time.monotonic() + liveness.LOST_SECONDS
        while time.monotonic() < end:
            if not rival or not self._claim_path(token).exists() or self.read() != before:
                return False
            if is_alive(rival) is False:
                return True
            time.sleep(POLL_SECONDS)
        if is_alive(rival):
            raise self._held_by(rival)
        return True

    def _claim_path(self, token: int) -> Path:
        return self.path.with_name(f".{self.path.name}.claim-{token}")

    def _held_by(self, holder: dict[str, Any] | None) -> LockHeld:
        assert holder is not None
        since = f" since {liveness.clock(holder['since'])}" if "since" in holder else ""
        here = "this process, " if process_of(holder) == this_process() else ""
        doing = f", at work on {holder['where']}" if "where" in holder else ""
        return LockHeld(
            f"{self.path.parent} is in use by {here}{liveness.process_name(holder)}{since}{doing} "
            f"({self.path.name}); stop it first, or wait until it ends"
        )


def fencing_token(record: dict[str, Any] | None) -> int:
    """The token of a lock's record; 0 without a record."""
    return record.get("term", 0) if record else 0
