"""StoreClient: calls a torch store on its own thread, because a call may never return."""

import atexit
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from torch.distributed.distributed_c10d import Store

STOP_SECONDS = 5
Operation = Callable[[Store], Any]


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
