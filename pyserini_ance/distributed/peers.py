"""Peers: heartbeats in a shared store that show within seconds which other process has ended, and why.

`StoreClient` calls the store on a thread of its own, because a call may never return.
"""

import atexit
import json
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import asdict
from typing import Any

from torch.distributed.distributed_c10d import Store

from pyserini_ance.distributed.failures import CURE, PeerError, PeerLoss
from pyserini_ance.storage.liveness import is_alive

STOP_SECONDS = 5
Operation = Callable[[Store], Any]
BEAT_SECONDS = 5
CHECK_SECONDS = 0.5
SILENT_SECONDS = 45  # a process without a heartbeat for so long is stopped, or its host is gone
PROPAGATION_SECONDS = 15  # for a loss to reach all, on busy hosts; torchrun kills the others after 30 s
POLL_SECONDS = 0.05
NO_LOSS = "-"
ENDED = ("heard", "left")  # in place of the last heartbeat: this process needs no more news
STORE = "the store that torchrun or process 0 holds"


class StoreClient:
    """Runs operations in order; a call never returns while the store's host is stopped.

    Between them `tick(store)` runs every `every_seconds`.

    An error of the store closes the client: `on_error(error)` is called on its thread, and all pending
    operations fail.
    """

    def __init__(
        self,
        store: Store,
        tick: Callable[[Store], None],
        every_seconds: float,
        on_error: Callable[[Exception], None],
    ):
        self._store, self._tick, self._every_seconds, self._on_error = store, tick, every_seconds, on_error
        self._pending: queue.SimpleQueue[tuple[Operation, Future] | None] = queue.SimpleQueue()
        self._closed = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="store client", daemon=True)
        self._thread.start()
        # A thread that is inside torch while the interpreter shuts down aborts the process.
        atexit.register(self.stop)

    def submit(self, operation: Operation) -> Future:
        """Return a future of `operation(store)`.

        It fails when the client closes, and stays open while the store is silent.
        """
        future: Future = Future()
        self._pending.put((operation, future))
        if self._closed:
            self._fail_pending()
        return future

    def stop(self) -> None:
        """Finish the pending operations, and end the thread."""
        self._pending.put(None)
        self._thread.join(STOP_SECONDS)
        atexit.unregister(self.stop)

    def _serve(self) -> None:
        try:
            self._run()
        except Exception as error:
            self._error = error
            self._on_error(error)
        self._closed = True
        self._fail_pending()

    def _run(self) -> None:
        tick_at = time.monotonic()
        while True:
            if time.monotonic() >= tick_at:
                self._tick(self._store)
                tick_at = time.monotonic() + self._every_seconds
            try:
                item = self._pending.get(timeout=max(0.0, tick_at - time.monotonic()))
            except queue.Empty:
                continue
            if item is None:
                return
            operation, future = item
            try:
                future.set_result(operation(self._store))
            except Exception:
                self._pending.put(item)  # fails with the others, once the error is known
                raise

    def _fail_pending(self) -> None:
        while True:
            try:
                item = self._pending.get_nowait()
            except queue.Empty:
                return
            if item is not None:
                item[1].set_exception(self._error or RuntimeError("the store client is closed"))


class StallTimer:
    """Measures for how many seconds a value has not changed.

    The time between two calls counts as two heartbeats at most: a process that was stopped itself for long
    does not take the others for dead.
    """

    def __init__(self) -> None:
        self._value: Any = None
        self._seconds = 0.0
        self._called_at = time.monotonic()

    def unchanged_seconds(self, value: Any) -> float:
        """Seconds for which `value` has been the same, as of this call."""
        now = time.monotonic()
        passed = min(now - self._called_at, 2 * BEAT_SECONDS)
        self._seconds = self._seconds + passed if value == self._value else 0.0
        self._value, self._called_at = value, now
        return self._seconds


def init_heartbeats(store: Store, rank: int) -> None:
    """Write the keys that `Peers` expects in the store, before any `Peers` is made."""
    store.set(f"beat/{rank}", "0")
    if rank == 0:
        store.set("loss", NO_LOSS)


class Peers:
    """The other processes of a world; `store` holds a heartbeat of each process, and the first loss.

    `processes` are the ids of all processes (`storage.liveness.this_process`), in rank order. `on_loss` is
    called on any thread once a loss is known.
    """

    def __init__(
        self,
        rank: int,
        processes: list[dict[str, Any]],
        store: Store,
        on_loss: Callable[[], None] = lambda: None,
    ):
        self._rank, self._processes, self._on_loss = rank, processes, on_loss
        # A pid is meaningless in another container, which may have the same host name.
        self._visible = [is_alive(process) is True for process in processes]
        self._loss: PeerLoss | None = None  # the first loss, once it is known
        self._checks, self._beats, self._beat_at, self._left = 0, 0, 0.0, False
        self._beat_timers, self._store_timer = [StallTimer() for _ in processes], StallTimer()
        self._client = StoreClient(store, self._check_peers, CHECK_SECONDS, self._on_store_error)

    def check(self) -> None:
        """Raise PeerError when another process is known to have ended.

        Costs a microsecond, for use in long loops.
        """
        if self._loss is None and self._store_timer.unchanged_seconds(self._checks) > SILENT_SECONDS:
            self._loss = PeerLoss(0, f"{STORE} has not answered for {SILENT_SECONDS} s; {CURE}", died=True)
            self._on_loss()
        if self._loss is not None:
            raise PeerError(self._loss)

    def call(self, operation: Callable[[Store], Any]) -> Any:
        """Return `operation(store)`. Raises PeerError when no answer will come."""
        future = self._client.submit(operation)
        while not wait([future], CHECK_SECONDS).done:
            self.check()
        if future.exception():
            self.check()
        return future.result()

    def lost(self) -> str | None:
        """Which other process is known to have failed or died first.

        None when none did, or one was only interrupted.
        """
        if self._loss is None:
            wait([self._client.submit(self._check_peers)], PROPAGATION_SECONDS)
        loss = self._loss
        return None if loss is None or loss.interrupted or loss.rank == self._rank else loss.message

    def report(self, loss: PeerLoss) -> None:
        """Tell the others why all processes end, unless a loss is known already."""
        if self._loss is None:
            wait(
                [self._client.submit(lambda store: self._check_and_report(store, loss))], PROPAGATION_SECONDS
            )
        if self._rank == 0:
            self._wait_for_others(PROPAGATION_SECONDS)

    def leave(self) -> None:
        """Stop the heartbeats, after successful work."""
        wait([self._client.submit(self._record_leaving)], PROPAGATION_SECONDS)
        if self._rank == 0:
            self._wait_for_others(SILENT_SECONDS)
        self._client.stop()

    def _wait_for_others(self, seconds: float) -> None:
        """Wait until the others know the loss, have left or are dead: process 0 may hold the store."""
        end = time.monotonic() + seconds
        ended = {0, self._loss.rank if self._loss else 0}
        while (remaining := end - time.monotonic()) > 0:
            future = self._client.submit(self._read)
            if not wait([future], remaining).done or future.exception():
                return
            if all(
                rank in ended or beat in ENDED or self._is_dead(rank)
                for rank, beat in enumerate(future.result()[1])
            ):
                return
            time.sleep(POLL_SECONDS)

    def _is_dead(self, rank: int) -> bool:
        return self._visible[rank] and is_alive(self._processes[rank]) is False

    # The methods below run on the client's thread.

    def _read(self, store: Store) -> tuple[str, list[str]]:
        """The loss, and the heartbeats in rank order."""
        loss, *beats = store.multi_get(["loss", *(f"beat/{rank}" for rank in range(len(self._processes)))])
        return loss.decode(), [beat.decode() for beat in beats]

    def _check_peers(self, store: Store) -> None:
        if self._loss is None and not self._left:
            self._beat(store)
            # Before the store is read: a process may have written its last message there just before it died.
            dead = [self._is_dead(rank) for rank in range(len(self._processes))]
            loss, beats = self._read(store)
            if loss != NO_LOSS:
                self._adopt(store, loss)
            elif (first := self._first_lost(dead, beats)) is not None:
                self._record_loss(store, first)
        self._checks += 1

    def _check_and_report(self, store: Store, loss: PeerLoss) -> None:
        self._check_peers(store)
        self._record_loss(store, loss)

    def _beat(self, store: Store) -> None:
        if time.monotonic() >= self._beat_at:
            self._beats += 1
            store.set(f"beat/{self._rank}", str(self._beats))
            self._beat_at = time.monotonic() + BEAT_SECONDS

    def _first_lost(self, dead: list[bool], beats: list[str]) -> PeerLoss | None:
        silent = [
            timer.unchanged_seconds(beat) > SILENT_SECONDS
            for timer, beat in zip(self._beat_timers, beats, strict=True)
        ]
        for rank, beat in enumerate(beats):
            if rank != self._rank and beat not in ENDED and (dead[rank] or silent[rank]):
                return self._loss_of(
                    rank, "has died" if dead[rank] else f"has not answered for {SILENT_SECONDS} s"
                )
        return None

    def _record_loss(self, store: Store, loss: PeerLoss) -> None:
        if self._loss is None:
            self._adopt(store, store.compare_set("loss", NO_LOSS, json.dumps(asdict(loss))).decode())

    def _adopt(self, store: Store, loss: str) -> None:
        self._loss = PeerLoss(**json.loads(loss))
        store.set(f"beat/{self._rank}", "heard")
        self._on_loss()

    def _record_leaving(self, store: Store) -> None:
        self._left = True
        store.set(f"beat/{self._rank}", "left")

    def _loss_of(self, rank: int, how: str) -> PeerLoss:
        process = self._processes[rank]
        return PeerLoss(
            rank,
            f"process {rank} of {len(self._processes)} (pid {process['pid']} on {process['host']}) {how}; "
            + CURE,
            died=True,
        )

    def _on_store_error(self, error: Exception) -> None:
        """The store is gone, probably together with process 0, whose death the system may not show yet."""
        end = time.monotonic() + PROPAGATION_SECONDS / 2
        while not (dead := self._rank != 0 and self._is_dead(0)) and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        why = (str(error).splitlines() or [type(error).__name__])[0]
        self._loss = self._loss or (
            self._loss_of(0, "has died")
            if dead
            else PeerLoss(0, f"{STORE} is gone ({why}); {CURE}", died=True)
        )
        self._on_loss()
