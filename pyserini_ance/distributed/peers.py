"""Peers: hears within seconds that another process of the world has failed, was interrupted or died, and passes on why."""

import json
import time
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import asdict
from typing import Any

import torch.distributed as dist

from pyserini_ance.distributed.line import StoreLine
from pyserini_ance.distributed.loss import CURE, Loss, PeerError
from pyserini_ance.storage.owner import lives

BEAT_SECONDS = 5
LOOK_SECONDS = 0.5
SILENT_SECONDS = 45  # so long without a beat: the process is stopped, or its host is gone
HEAR_SECONDS = 15  # for news to go round, on hosts that are busy; torchrun gives 30 s to what it ends
POLL_SECONDS = 0.05
NO_LOSS = "-"
ENDED = ("heard", "left")  # in place of the last beat: this process needs no more news
STORE = "the store that torchrun or process 0 holds"


class Silence:
    """For how many seconds a value has not changed.

    The time between two calls counts as two beats at most: who was itself stopped for long does not take the others for dead.
    """

    def __init__(self):
        self._value, self._seconds, self._asked = None, 0.0, time.monotonic()

    def of(self, value: Any) -> float:
        now = time.monotonic()
        passed = min(now - self._asked, 2 * BEAT_SECONDS)
        self._seconds = self._seconds + passed if value == self._value else 0.0
        self._value, self._asked = value, now
        return self._seconds


def open_books(store: dist.Store, rank: int) -> None:
    """What `Peers` expects in the store, before any of them is made."""
    store.set(f"beat/{rank}", "0")
    if rank == 0:
        store.set("loss", NO_LOSS)


class Peers:
    """`owners`: who each process is, in rank order (storage/owner.py); `store` holds a beat of each, and the first loss."""

    def __init__(self, rank: int, owners: list[dict[str, Any]], store: dist.Store):
        self._rank, self._owners = rank, owners
        # The system knows a process by its number; not one in another container, which can have the same host name.
        self._visible = [lives(owner) is True for owner in owners]
        self._loss: Loss | None = None  # the first, once it is known
        self._looks, self._beats, self._beat_at, self._left = 0, 0, 0.0, False
        self._silences, self._silence = [Silence() for _ in owners], Silence()
        self._line = StoreLine(store, self._look, LOOK_SECONDS, self._without_store)

    def check(self) -> None:
        """Raise PeerError when another process is known to have ended. Costs a microsecond: for loops that last."""
        if self._loss is None and self._silence.of(self._looks) > SILENT_SECONDS:
            self._loss = Loss(0, f"{STORE} has not answered for {SILENT_SECONDS} s; {CURE}", died=True)
        if self._loss is not None:
            raise PeerError(self._loss)

    def ask(self, question: Callable[[dist.Store], Any]) -> Any:
        """`question(store)`; PeerError when no answer will come."""
        answer = self._line.ask(question)
        while not wait([answer], LOOK_SECONDS).done:
            self.check()
        if answer.exception():
            self.check()
        return answer.result()

    def lost(self) -> str | None:
        """Which other process failed or died first, as known now; None when none did, or one was only interrupted."""
        if self._loss is None:
            wait([self._line.ask(self._look)], HEAR_SECONDS)
        loss = self._loss
        return None if loss is None or loss.interrupted or loss.rank == self._rank else loss.text

    def publish(self, loss: Loss) -> None:
        """Tell the others why all end, unless a loss is known already."""
        if self._loss is None:
            wait([self._line.ask(lambda store: self._look(store) or self._report(store, loss))], HEAR_SECONDS)
        if self._rank == 0:
            self._wait_for_ends(HEAR_SECONDS)

    def leave(self) -> None:
        """End the watch, after good work."""
        wait([self._line.ask(self._say_left)], HEAR_SECONDS)
        if self._rank == 0:
            self._wait_for_ends(SILENT_SECONDS)
        self._line.stop()

    def _wait_for_ends(self, seconds: float) -> None:
        """Process 0, which may hold the store, goes last: when the others have heard its news, or are dead."""
        until = time.monotonic() + seconds
        gone = {0, self._loss.rank if self._loss else 0}
        while (left := until - time.monotonic()) > 0:
            answer = self._line.ask(self._books)
            if not wait([answer], left).done or answer.exception():
                return
            if all(rank in gone or beat in ENDED or self._is_dead(rank) for rank, beat in enumerate(answer.result()[1])):
                return
            time.sleep(POLL_SECONDS)

    def _is_dead(self, rank: int) -> bool:
        return self._visible[rank] and lives(self._owners[rank]) is False

    # The rest runs on the line's thread.

    def _books(self, store: dist.Store) -> tuple[str, list[str]]:
        loss, *beats = store.multi_get(["loss", *(f"beat/{rank}" for rank in range(len(self._owners)))])
        return loss.decode(), [beat.decode() for beat in beats]

    def _look(self, store: dist.Store) -> None:
        if self._loss is None and not self._left:
            self._beat(store)
            dead = [self._is_dead(rank) for rank in range(len(self._owners))]  # before the books, where a last word may stand
            loss, beats = self._books(store)
            if loss != NO_LOSS:
                self._hear(store, loss)
            elif (gone := self._first_gone(dead, beats)) is not None:
                self._report(store, gone)
        self._looks += 1

    def _beat(self, store: dist.Store) -> None:
        if time.monotonic() >= self._beat_at:
            self._beats += 1
            store.set(f"beat/{self._rank}", str(self._beats))
            self._beat_at = time.monotonic() + BEAT_SECONDS

    def _first_gone(self, dead: list[bool], beats: list[str]) -> Loss | None:
        silent = [silence.of(beat) > SILENT_SECONDS for silence, beat in zip(self._silences, beats, strict=True)]
        for rank, beat in enumerate(beats):
            if rank != self._rank and beat not in ENDED and (dead[rank] or silent[rank]):
                return self._gone(rank, "has died" if dead[rank] else f"has not answered for {SILENT_SECONDS} s")
        return None

    def _report(self, store: dist.Store, loss: Loss) -> None:
        if self._loss is None:
            self._hear(store, store.compare_set("loss", NO_LOSS, json.dumps(asdict(loss))).decode())

    def _hear(self, store: dist.Store, loss: str) -> None:
        self._loss = Loss(**json.loads(loss))
        store.set(f"beat/{self._rank}", "heard")

    def _say_left(self, store: dist.Store) -> None:
        self._left = True
        store.set(f"beat/{self._rank}", "left")

    def _gone(self, rank: int, how: str) -> Loss:
        owner = self._owners[rank]
        return Loss(rank, f"process {rank} of {len(self._owners)} (pid {owner['pid']} on {owner['host']}) {how}; {CURE}", died=True)

    def _without_store(self, error: Exception) -> None:
        """The store is gone, and most likely process 0 with it, of whose death the system may not know yet."""
        until = time.monotonic() + HEAR_SECONDS / 2
        while not (dead := self._rank != 0 and self._is_dead(0)) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        why = (str(error).splitlines() or [type(error).__name__])[0]
        self._loss = self._loss or (self._gone(0, "has died") if dead else Loss(0, f"{STORE} is gone ({why}); {CURE}", died=True))
