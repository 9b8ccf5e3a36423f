"""StoreLine: asks a torch store on a thread of its own, since the answer never comes when the store's host is stopped."""

import atexit
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch.distributed as dist

STOP_SECONDS = 5


class StoreLine:
    """Questions are asked in order; between them `tick(store)` runs every `every_seconds`.

    An error of the store ends the line: `on_error(error)` is called on its thread, and what is unanswered fails.
    """

    def __init__(self, store: dist.Store, tick: Callable[[dist.Store], None], every_seconds: float, on_error: Callable[[Exception], None]):
        self._store, self._tick, self._every_seconds, self._on_error = store, tick, every_seconds, on_error
        self._questions: queue.SimpleQueue = queue.SimpleQueue()
        self._closed = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="store line", daemon=True)
        self._thread.start()
        atexit.register(self.stop)  # a thread that is inside torch while the interpreter goes down aborts the process

    def ask(self, question: Callable[[dist.Store], Any]) -> Future:
        """`question(store)`, once it has been asked; the future fails with the line, and stays open while the store is silent."""
        answer: Future = Future()
        self._questions.put((question, answer))
        if self._closed:
            self._refuse()
        return answer

    def stop(self) -> None:
        self._questions.put(None)
        self._thread.join(STOP_SECONDS)
        atexit.unregister(self.stop)

    def _serve(self) -> None:
        try:
            self._answer()
        except Exception as error:
            self._error = error
            self._on_error(error)
        self._closed = True
        self._refuse()

    def _answer(self) -> None:
        tick_at = time.monotonic()
        while True:
            if time.monotonic() >= tick_at:
                self._tick(self._store)
                tick_at = time.monotonic() + self._every_seconds
            try:
                asked = self._questions.get(timeout=max(0.0, tick_at - time.monotonic()))
            except queue.Empty:
                continue
            if asked is None:
                return
            question, answer = asked
            try:
                answer.set_result(question(self._store))
            except Exception:
                self._questions.put(asked)  # to be refused with the others, once the error is known
                raise

    def _refuse(self) -> None:
        while True:
            try:
                asked = self._questions.get_nowait()
            except queue.Empty:
                return
            if asked is not None:
                asked[1].set_exception(self._error or RuntimeError("the line to the store is closed"))
