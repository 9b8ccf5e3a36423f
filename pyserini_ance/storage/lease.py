"""Leases keep a folder that is being read from being removed.

A reader writes its lease, then waits for any removal in progress. A remover announces the removal, then looks
for leases. Each writes its own file before it looks for the other's. A folder is therefore either whole or
gone when a reader opens it, and does not change until the reader is done.
"""

import glob
import itertools
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyserini_ance.storage.files import read_json_object, write_json
from pyserini_ance.storage.liveness import (
    REMOVAL,
    clock,
    creator_of,
    host_name,
    is_alive,
    process_is_alive,
    process_name,
    remove,
    temp_path,
    this_process,
)

EXPIRY_SECONDS = 24 * 3600
REMOVAL_SECONDS = 10  # longest wait for a remover to look for leases and rename the folder
POLL_SECONDS = 0.01
RENEWAL_SECONDS = 3600
_counter = itertools.count()
log = logging.getLogger(__name__)


@contextmanager
def leased(folder: Path, why: str) -> Iterator[None]:
    """Keep `folder` from being removed while the block runs; `why` is the reason to show to others.

    The folder need not exist. Raises OSError when its parent does not exist or is not writable.
    """
    path = folder.with_name(f".{folder.name}.lease.{host_name()}.{os.getpid()}.{next(_counter)}")
    try:
        write_json(path, {**this_process(), "why": why, "since": time.time()})
    except OSError as error:
        reason = (
            f"{error.strerror}: cannot write here, so cannot keep {folder.name} from being removed "
            f"while it is read ({why})"
        )
        raise OSError(
            error.errno, f"{reason}. Make this folder writable, or read a copy", str(folder.parent)
        ) from error
    end = threading.Event()
    threading.Thread(target=_renew, args=(path, end), name=f"lease of {folder.name}", daemon=True).start()
    try:
        _wait_for_removers(folder)
        yield
    finally:
        end.set()
        path.unlink(missing_ok=True)


def lease_holders(folder: Path) -> list[str]:
    """Describe the processes that read the folder now.

    Leases of dead processes are removed; a lease from another host expires when it is not renewed for a day.
    """
    holders = []
    for path in sorted(folder.parent.glob(f".{glob.escape(folder.name)}.lease.*")):
        lease = read_json_object(path)
        if lease is None:
            continue
        alive = is_alive(lease)
        if alive or (alive is None and _is_recent(path)):
            holders.append(f"{process_name(lease)} since {clock(lease['since'])} ({lease['why']})")
        else:
            path.unlink(missing_ok=True)
    return holders


def sweep_leases(directory: Path) -> None:
    """Remove the leases in `directory` whose processes are dead."""
    for name in {
        path.name.partition(".lease.")[0].removeprefix(".") for path in directory.glob(".*.lease.*")
    }:
        lease_holders(directory / name)


def remove_unless_leased(folder: Path) -> bool:
    """Remove the folder unless a process reads it; return whether it is gone now."""
    intent = temp_path(folder, REMOVAL)
    renamed = temp_path(folder, "gone")
    try:
        intent.touch()
        if not folder.exists():
            return True
        if _is_leased(folder) or not _rename_away(folder, renamed):
            return False
    finally:
        intent.unlink(missing_ok=True)
    remove(renamed)
    return True


def _rename_away(folder: Path, renamed: Path) -> bool:
    """False if a reader acquired a lease in the meantime; the folder is then moved back.

    Such a reader waits for this removal, or has stopped waiting when this process was suspended.
    """
    try:
        os.rename(folder, renamed)
    except FileNotFoundError:  # another process has removed it
        return True
    if not _is_leased(folder):
        return True
    os.rename(renamed, folder)
    return False


def _wait_for_removers(folder: Path) -> None:
    end = time.monotonic() + REMOVAL_SECONDS
    while time.monotonic() < end and any(
        map(_is_in_progress, folder.parent.glob(f".{glob.escape(folder.name)}.*.{REMOVAL}"))
    ):
        time.sleep(POLL_SECONDS)


def _is_in_progress(intent: Path) -> bool:
    creator = creator_of(intent)
    return creator is not None and (creator[0] != host_name() or process_is_alive(creator[1]))


def _is_leased(folder: Path) -> bool:
    holders = lease_holders(folder)
    if holders:
        log.info("%s is kept: it is read by %s", folder, ", ".join(holders))
    return bool(holders)


def _renew(path: Path, end: threading.Event) -> None:
    while not end.wait(RENEWAL_SECONDS):
        try:
            os.utime(path)  # with the file server's clock
        except OSError as error:
            log.warning("could not renew %s: %s", path, error)


def _is_recent(path: Path) -> bool:
    """Whether a lease was renewed within EXPIRY_SECONDS, by the file server's clock.

    The time of a file touched now tells that clock; this host's may be hours off.
    """
    probe = temp_path(path, "tmp")
    try:
        probe.touch()
        os.utime(probe)
        return probe.stat().st_mtime - path.stat().st_mtime < EXPIRY_SECONDS
    except FileNotFoundError:  # the lease ended just now
        return False
    finally:
        probe.unlink(missing_ok=True)
