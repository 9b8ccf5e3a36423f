"""Election: of processes that want a post at the same time, exactly one gets the next term of office."""

import json
import logging
import time
from pathlib import Path
from typing import Any

from pyserini_ance.storage import watch
from pyserini_ance.storage.beside import beside
from pyserini_ance.storage.files import naming, read_json_object
from pyserini_ance.storage.owner import lives, process_of, this_process

POLL_SECONDS = 0.05
KEYS = {"status", "where", "pid", "host"}
log = logging.getLogger(__name__)


class Held(RuntimeError):
    """Another process, which lives, has the post."""


class Election:
    """Terms are claimed by a link `.<file>.claim-<term>`, which only one process can make, and which stays while the term lasts.

    A process that dies with its claim leaves a gap: the next one claims the term after it. So no claim is ever broken.
    While it stays, nobody is misled by what a process that is suspended in mid-writing may yet write over the file.
    """

    def __init__(self, path: Path):
        self.path = path

    def read(self) -> dict[str, Any] | None:
        """The file of whatever version; None without one. Raises RuntimeError when it is not a post's."""
        record = read_json_object(self.path)
        if record is not None and KEYS - record.keys():
            raise RuntimeError(f"{self.path} lacks {sorted(KEYS - record.keys())}, which tell who works here; restore or remove it")
        return record

    def vacant(self) -> dict[str, Any] | None:
        """What a holder that is gone has left, None without a file. Raises Held when another living process has the post."""
        seen = watch.Watch(self)
        if seen.alive() and process_of(seen.record) != this_process():
            if seen.undecided:
                log.info("waiting up to %g s to see whether %s is alive: %s", watch.LOST_SECONDS, watch.named(seen.record), self.path)
            while seen.undecided and seen.alive():
                time.sleep(POLL_SECONDS)
            if seen.alive():
                raise self._held(seen.record)
        return seen.record

    def win(self) -> tuple[int, dict[str, Any] | None]:
        """Our term, for which to write the file now, and what the holder before has left. Raises Held as `vacant` does."""
        while (term := self._claim_after(before := self.vacant())) is None:
            pass
        return term, before

    def release(self, term: int) -> None:
        """Our claim, at the end of the term."""
        self._claim_path(term).unlink(missing_ok=True)

    def forget_before(self, term: int) -> None:
        """Claims of dead processes, once the file says that a later term has begun."""
        for claim in self.path.parent.glob(f".{self.path.name}.claim-*"):
            number = claim.name.rpartition("-")[2]
            if number.isdecimal() and int(number) < term:
                claim.unlink(missing_ok=True)

    def _claim_after(self, before: dict[str, Any] | None) -> int | None:
        """The term that is ours now; None when another process was quicker, so that we look again."""
        term = term_of(before) + 1
        while (rival := self._claim(term)) is not None:
            if not self._outlived(rival, term, before):
                return None
            term += 1
        if self.read() == before:
            return term
        self.release(term)  # it was free because its winner's term is over by now
        return None

    def _claim(self, term: int) -> dict[str, Any] | None:
        """None when the claim is ours, else whose it is ({}: nobody's any more)."""
        ours = {**this_process(), "time": time.time_ns()}
        claim, written = self._claim_path(term), beside(self._claim_path(term), "tmp")
        try:
            with naming(claim):
                written.write_text(json.dumps(ours), encoding="utf-8")
                claim.hardlink_to(written)
            return None
        except FileExistsError:
            rival = read_json_object(claim) or {}
            return None if rival == ours else rival  # ours: NFS repeats a request whose answer was lost
        finally:
            written.unlink(missing_ok=True)

    def _outlived(self, rival: dict[str, Any], term: int, before: dict[str, Any] | None) -> bool:
        """Whether the rival is dead, which of one on another host silence tells; else it writes the file any moment."""
        end = time.monotonic() + watch.LOST_SECONDS
        while time.monotonic() < end:
            if not rival or not self._claim_path(term).exists() or self.read() != before:
                return False
            if lives(rival) is False:
                return True
            time.sleep(POLL_SECONDS)
        if lives(rival):
            raise self._held(rival)
        return True

    def _claim_path(self, term: int) -> Path:
        return self.path.with_name(f".{self.path.name}.claim-{term}")

    def _held(self, holder: dict[str, Any]) -> Held:
        since = f" since {watch.clock(holder['since'])}" if "since" in holder else ""
        doing = f", at work on {holder['where']}" if "where" in holder else ""
        return Held(f"{self.path.parent} is in use by {watch.named(holder)}{since}{doing} ({self.path.name}); stop it first, or wait for its end")


def term_of(record: dict[str, Any] | None) -> int:
    return record.get("term", 0) if record else 0
