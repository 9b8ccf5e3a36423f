"""Progress of long loops: tqdm's bar on a terminal and in a notebook, plain lines in a log file."""

import logging
import os
import sys
import time
from typing import Any

from tqdm import tqdm

SECONDS_PER_LINE = 10
LABELLED_SECONDS_PER_LINE = 60  # several runs share a terminal
_label: str | None = None  # of `label_lines`


class Lines(tqdm):
    """A line every SECONDS_PER_LINE or LABELLED_SECONDS_PER_LINE seconds, and at the end if there was one
    before."""

    def __init__(self, *, delay: float = 0, **settings: Any):
        self._last_line = time.monotonic()
        self._has_lines = False
        self._seconds = LABELLED_SECONDS_PER_LINE if _label else SECONDS_PER_LINE
        settings |= {"mininterval": self._seconds, "ncols": 0}
        super().__init__(delay=max(delay, self._seconds), **settings)
        self.sp = None  # the function that would write "\r" and the bar

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        if time.monotonic() - self._last_line < self._seconds:
            return False  # also called after each message that is logged
        self._write_line()
        return True

    def clear(self, nolock: bool = False) -> None:
        """Lines stay."""

    def close(self) -> None:
        if not self.disable and self._has_lines:
            self._write_line()
        super().close()

    def _write_line(self) -> None:
        self._last_line, self._has_lines = time.monotonic(), True
        self.fp.write(f"{_label}: {self}\n" if _label else f"{self}\n")
        self.fp.flush()


def label_lines(label: str) -> None:
    """Begin what this process logs from now on with `label`, and show progress as lines that begin so.

    For processes that share a terminal.
    """
    global _label
    _label = label
    make = logging.getLogRecordFactory()

    def labelled(*arguments: Any, **more: Any) -> logging.LogRecord:
        record = make(*arguments, **more)
        text = record.getMessage()
        record.msg, record.args = "\n".join(f"{label}: {line}" for line in text.split("\n")), None
        return record

    logging.setLogRecordFactory(labelled)


def progress_bar(**settings: Any) -> tqdm:
    """The progress of a loop, with tqdm's settings."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):  # stderr was replaced
        columns = 80
    # Some terminals, as of a build service, have 0 columns: a bar would be empty.
    has_place = (sys.stderr.isatty() and columns > 0) or "ipykernel" in sys.modules
    return tqdm(**settings) if has_place and not _label else Lines(**settings)
