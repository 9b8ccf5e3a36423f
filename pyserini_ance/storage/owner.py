"""Who works on a folder: a process, named so that neither a reused number nor another host is mistaken for it."""

import os
import socket
from pathlib import Path
from typing import Any


def this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "started": _start_ticks(os.getpid())}


def lives(owner: dict[str, Any]) -> bool | None:
    """Whether the process that wrote `owner` still runs; None when that cannot be known: another host, or another version."""
    if owner.get("host") != socket.gethostname() or "started" not in owner:
        return None
    return _start_ticks(owner["pid"]) == owner["started"]


def _start_ticks(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process, None when there is none: a reused number started later."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *numbers = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(numbers[18])  # Z: it has ended, and waits for its parent to ask how
