"""Who works on a folder: a process, named so that neither a reused number nor another host is mistaken for it."""

import os
import socket
from pathlib import Path
from typing import Any


def this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "started": _start_ticks(os.getpid())}


def process_of(record: dict[str, Any]) -> dict[str, Any]:
    """The process that wrote a record, to compare with another record's or with `this_process()`."""
    return {key: record.get(key) for key in ("pid", "host", "started")}


def lives(owner: dict[str, Any]) -> bool | None:
    """Whether the process that wrote `owner` still runs; None when that cannot be known: another host, or another version."""
    if owner.get("host") != socket.gethostname() or "started" not in owner:
        return None
    return _start_ticks(owner["pid"]) == owner["started"]


def process_lives(pid: int) -> bool:
    """Whether a process of this host has the number, be it the one that was meant or a later one."""
    return _start_ticks(pid) is not None


def _start_ticks(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process, None when there is none: a reused number started later."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])  # Z, X: it has ended, and its parent has not asked for its exit code
