"""How a process ends before its work is done: by a signal, or because another process has ended."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FAILED = 1  # exit codes; argparse exits with 2 for wrong arguments
INTERRUPTED = 130
# For the work of a process before it exits: record the end, stop a subprocess. torchrun kills after 30 s.
SHUTDOWN_SECONDS = 30
_shutdown_until = 0.0


def interrupt_on_termination() -> None:
    """Let a batch system's SIGTERM end a run like Ctrl-C, by KeyboardInterrupt.

    One request to end arrives repeatedly: from the terminal and from torchrun, or after an error, when
    torchrun ends the other processes. Once the shutdown has begun, further signals are ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def begin_shutdown() -> None:
    """Ignore signals from now on for SHUTDOWN_SECONDS: the work has ended, for whatever reason."""
    global _shutdown_until
    _shutdown_until = time.monotonic() + SHUTDOWN_SECONDS


def _interrupt(number: int, frame: object) -> None:
    if time.monotonic() > _shutdown_until:
        begin_shutdown()
        raise KeyboardInterrupt


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay SIGINT and SIGTERM to the end of the block, for work that must not be left half done.

    The handlers that are installed then run: ours, or Python's own. A signal that no Python function handles
    keeps its effect.
    """
    received: list[tuple[int, Any]] = []
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # Python runs handlers in no other
        for number in map(int, (signal.SIGINT, signal.SIGTERM)):
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
                signal.signal(number, lambda *request: received.append(request))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for number, frame in received[:1]:  # not after an error, which ends the work by itself
        handlers[number](number, frame)


class PeerError(RuntimeError):
    """Another process of the world has ended, so this one cannot continue."""
