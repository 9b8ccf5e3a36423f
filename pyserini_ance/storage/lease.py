"""Leases: who reads a folder says so beside it, and whoever wants to remove the folder looks there first.

A reader takes its lease, then looks whether somebody is about to remove the folder, and waits for that. A remover says that
it is about to, then looks for leases. Each makes its mark before it looks for the other's: so a folder is whole or gone
when a reader opens it, and stays as it is until the reader has done.
"""

import glob
import itertools
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyserini_ance.storage.beside import REMOVAL, beside, maker_of, remove
from pyserini_ance.storage.files import read_json_object, write_json
from pyserini_ance.storage.owner import lives, process_lives, this_process
from pyserini_ance.storage.watch import clock, named

FORGOTTEN_SECONDS = 24 * 3600
REMOVAL_SECONDS = 10  # for a look at leases and a rename
POLL_SECONDS = 0.01
RENEWAL_SECONDS = 3600
_numbers = itertools.count()
log = logging.getLogger(__name__)


@contextmanager
def leased(folder: Path, why: str) -> Iterator[None]:
    """Keep `folder` from being removed. It need not be there; the folder that it lies in must, and be writable (else OSError)."""
    path = folder.with_name(f".{folder.name}.lease.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}")
    try:
        write_json(path, {**this_process(), "why": why, "since": time.time()})
    except OSError as error:
        reason = f"{error.strerror}: cannot write here, so cannot keep {folder.name} from being removed while it is read ({why})"
        raise OSError(error.errno, f"{reason}. Make this folder writable, or read a copy", str(folder.parent)) from error
    end = threading.Event()
    threading.Thread(target=_renew, args=(path, end), name=f"lease of {folder.name}", daemon=True).start()
    try:
        _let_remove(folder)
        yield
    finally:
        end.set()
        path.unlink(missing_ok=True)


def lease_holders(folder: Path) -> list[str]:
    """Who reads the folder now, described. Leases of dead processes are removed: another host's when not renewed for a day."""
    holders = []
    for path in sorted(folder.parent.glob(f".{glob.escape(folder.name)}.lease.*")):
        lease = read_json_object(path)
        if lease is None:
            continue
        living = lives(lease)
        if living or (living is None and _is_recent(path)):
            holders.append(f"{named(lease)} since {clock(lease['since'])} ({lease['why']})")
        else:
            path.unlink(missing_ok=True)
    return holders


def sweep_leases(room: Path) -> None:
    """Remove the leases that dead processes have left in `room`."""
    for name in {path.name.partition(".lease.")[0].removeprefix(".") for path in room.glob(".*.lease.*")}:
        lease_holders(room / name)


def remove_unless_leased(folder: Path) -> bool:
    """Remove the folder, or keep it for its readers. Whether it is gone now."""
    intent = beside(folder, REMOVAL)
    gone = beside(folder.with_name(f"{folder.name}.{next(_numbers)}"), "gone")
    try:
        intent.touch()
        if not folder.exists():
            return True
        if _is_read(folder) or not _renamed_away(folder, gone):
            return False
    finally:
        intent.unlink(missing_ok=True)
    remove(gone)
    return True


def _renamed_away(folder: Path, gone: Path) -> bool:
    """False when a reader has come meanwhile, who waits for us, or has ceased to, if we were suspended."""
    try:
        os.rename(folder, gone)
    except FileNotFoundError:  # another process was quicker
        return True
    if not _is_read(folder):
        return True
    os.rename(gone, folder)
    return False


def _let_remove(folder: Path) -> None:
    end = time.monotonic() + REMOVAL_SECONDS
    while time.monotonic() < end and any(map(_is_at_work, folder.parent.glob(f".{glob.escape(folder.name)}.*.{REMOVAL}"))):
        time.sleep(POLL_SECONDS)


def _is_at_work(intent: Path) -> bool:
    maker = maker_of(intent)
    return maker is not None and (maker[0] != socket.gethostname() or process_lives(maker[1]))


def _is_read(folder: Path) -> bool:
    holders = lease_holders(folder)
    if holders:
        log.info("%s stays: it is read by %s", folder, ", ".join(holders))
    return bool(holders)


def _renew(path: Path, end: threading.Event) -> None:
    while not end.wait(RENEWAL_SECONDS):
        try:
            os.utime(path)  # the file server's clock
        except OSError as error:
            log.warning("could not renew %s: %s", path, error)


def _is_recent(path: Path) -> bool:
    """By the file server's clock, which the time of a file touched now tells; this host's may be hours off."""
    probe = beside(path, "tmp")
    try:
        probe.touch()
        os.utime(probe)
        return probe.stat().st_mtime - path.stat().st_mtime < FORGOTTEN_SECONDS
    except FileNotFoundError:  # ended this moment
        return False
    finally:
        probe.unlink(missing_ok=True)
