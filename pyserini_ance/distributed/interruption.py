"""Ctrl-C and SIGTERM: the first ends the work by KeyboardInterrupt; once the end has begun, more of them change nothing."""

import signal
import time

# For what a process does before it goes: record the end, tell the others, stop a child. torchrun kills after 30 s.
ENDING_SECONDS = 30
_undisturbed_until = 0.0


def interrupt_on_termination() -> None:
    """A batch system's SIGTERM ends a run like Ctrl-C: its folder says where it stopped.

    One wish to end comes more than once: from the terminal and from torchrun, or after an error, when torchrun ends the others.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def begin_the_end() -> None:
    """The work is over, for whatever reason: let what follows go undisturbed."""
    global _undisturbed_until
    _undisturbed_until = time.monotonic() + ENDING_SECONDS


def _interrupt(number: int, frame: object) -> None:
    if time.monotonic() > _undisturbed_until:
        begin_the_end()
        raise KeyboardInterrupt
