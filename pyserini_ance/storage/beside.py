"""Hidden names beside a file or folder for work in progress. They name its process, so that what a dead one left can be swept."""

import logging
import os
import re
import shutil
import socket
from pathlib import Path
from typing import Any

from pyserini_ance.storage.owner import process_lives

log = logging.getLogger(__name__)
REMOVAL = "removal"
# The host as well: on a shared file system two hosts give the same process number, and cannot look each other's up.
UNFINISHED = re.compile(rf"\..+\.(?P<pid>\d+)@(?P<host>.+)\.(tmp|claim|gone|{REMOVAL})", re.DOTALL)
LEASE = re.compile(r"\..+\.lease\.(?P<host>.+)\.(?P<pid>\d+)\.\d+", re.DOTALL)


def beside(path: Path, kind: str) -> Path:
    """Where this process prepares `path` (`tmp`, `claim`), says that it will remove it (`removal`), and puts it before (`gone`)."""
    return path.with_name(f".{path.name}.{os.getpid()}@{socket.gethostname()}.{kind}")


def maker_of(path: Path) -> tuple[str, int] | None:
    """Host and number of the process that a hidden name tells; None for any other name."""
    match = UNFINISHED.fullmatch(path.name) or LEASE.fullmatch(path.name)
    return match and (match["host"], int(match["pid"]))


def sweep(folder: Path, former: dict[str, Any] | None = None) -> None:
    """Remove from `folder`, and from the folders in it, what dead processes left unfinished or leased.

    They are those of this host that are gone, and `former`, of whatever host, which the caller knows to be gone.
    """
    gone = former and (former["host"], former["pid"])
    for path in [*folder.glob(".*"), *folder.glob("*/.*")]:
        maker = maker_of(path)
        if maker and (maker == gone or (maker[0] == socket.gethostname() and not process_lives(maker[1]))):
            log.info("removing %s, left by process %d on host %s, which is gone", path, maker[1], maker[0])
            remove(path)


def remove(path: Path) -> None:
    """Remove a file or a folder that nobody needs; what cannot be removed is reported and left."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:  # on NFS a folder stays while a process of this host has a file of it open
        log.warning("%s is left over and can be removed by hand: %s", path, error)
