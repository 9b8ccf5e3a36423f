"""Publishing a folder: claimed by a rename, committed by its manifest, verified when read."""

import errno
import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pyserini_ance import __version__
from pyserini_ance.storage.beside import beside, remove, sweep
from pyserini_ance.storage.files import read_json, read_json_object, sha256_file, sync, write_json
from pyserini_ance.storage.owner import lives, process_of, this_process

MANIFEST = "manifest.json"
CLAIM = "claim.json"
MANIFEST_FORMAT = 1
POLL_SECONDS = 0.5
log = logging.getLogger(__name__)


class BeingWritten(RuntimeError):
    """Another process, which lives, has claimed the folder."""


def is_complete(folder: Path) -> bool:
    return (folder / MANIFEST).exists()


@contextmanager
def publishing(folder: Path, about: dict[str, Any]) -> Iterator[Path]:
    """Claim `folder`, let the caller fill it, then commit it with a manifest that holds `about` and every part's hash.

    A folder left by a dead process of this machine is cleared and claimed again; an error inside leaves no folder.
    Raises FileExistsError when the folder is complete already, BeingWritten when a living process works on it, OSError
    when a part cannot be written.
    """
    claim = _claim(folder)
    try:
        yield folder
        _commit(folder, about, claim)
    except BaseException as error:
        if not is_complete(folder):
            with suppress(OSError):  # `error` says more
                _remove(folder, claim)
        if isinstance(error, SafetensorError):  # a full disk, as safetensors reports it
            raise OSError(f"{folder} could not be written: {error}") from error
        raise


def publish_once(folder: Path, about: dict[str, Any], fill: Callable[[Path], None]) -> None:
    """Return when `folder` is complete: made by `fill(folder)`, or by another process, which is waited for."""
    waiting = False
    if not is_complete(folder):
        sweep(folder.parent)  # unlike a run directory, a cache is swept by nobody else
    while not is_complete(folder):
        try:
            with publishing(folder, about):
                fill(folder)
        except BeingWritten as other:
            if not waiting:
                log.info("waiting: %s", other)
            waiting = True
            time.sleep(POLL_SECONDS)
        except FileExistsError:
            if not is_complete(folder):
                raise


def read_manifest(folder: Path, verify: bool = True) -> dict[str, Any]:
    """The manifest of a complete folder. `verify` compares every part's size and hash with it.

    Raises FileNotFoundError when the folder was never completed, RuntimeError when a part is missing or differs.
    """
    path = folder / MANIFEST
    if not path.exists():
        raise FileNotFoundError(f"{folder} is not complete: it has no {MANIFEST}. Remove the folder and make it again.")
    manifest = read_json(path)
    if manifest.get("format") != MANIFEST_FORMAT:
        raise RuntimeError(f"{path} has format {manifest.get('format')!r}, this version reads {MANIFEST_FORMAT}")
    for name, part in manifest["parts"].items():
        file = folder / name
        if not file.exists():
            raise RuntimeError(f"{file} is missing, though {path} lists it; remove {folder} and make it again")
        if file.stat().st_size != part["bytes"] or (verify and sha256_file(file) != part["sha256"]):
            raise RuntimeError(f"{file} is not what {path} says was written; remove {folder} and make it again")
    return manifest


def clear_abandoned(room: Path, former: dict[str, Any]) -> None:
    """Remove the folders in `room` that the process `former` has claimed and not completed; the caller knows it to be gone.

    Of a process of this host nobody needs to know that: the next claim finds it dead.
    """
    for folder in sorted(room.glob("[!.]*")):
        owner = _owner(folder)
        if owner is not None and process_of(owner) == process_of(former) and not is_complete(folder):
            log.info("removing %s, left unfinished by process %s on host %s, which is gone", folder, former["pid"], former["host"])
            _remove(folder, owner)


def _claim(folder: Path) -> dict[str, Any]:
    """Rename a folder that holds our claim into place, which fails where files lie: no folder is ever without an owner."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    claim = {**this_process(), "time": time.time()}
    ours = beside(folder, "claim")
    shutil.rmtree(ours, ignore_errors=True)  # of a dead process that had our number
    ours.mkdir()
    try:
        write_json(ours / CLAIM, claim)
        while not _renamed(ours, folder):
            _clear_dead(folder)
    finally:
        shutil.rmtree(ours, ignore_errors=True)
    return claim


def _renamed(ours: Path, folder: Path) -> bool:
    try:
        os.rename(ours, folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _clear_dead(folder: Path) -> None:
    """Return when the folder may be free. The claim is read first and the names are listed after it: who commits, or is removed, meanwhile
    has then left its manifest, or nothing. Listing also makes an NFS client forget that there was no manifest.
    """
    owner = _owner(folder)
    names = set(_names(folder))
    if MANIFEST in names:
        raise FileExistsError(f"{folder} is complete already; remove it to make it again")
    if owner is None:
        if names and CLAIM not in names:
            raise RuntimeError(f"{folder} holds files of unknown origin (no {CLAIM}); remove the folder")
        return
    if process_of(owner) != this_process() and lives(owner) is not False:
        raise BeingWritten(
            f"{folder} is being written by process {owner['pid']} on {owner['host']}. "
            f"Wait for it, or, if that process is gone, remove the folder."
        )
    _remove(folder, owner)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _remove(folder: Path, owner: dict[str, Any]) -> None:
    """Remove what `owner` has claimed and will not complete, unless another process was quicker, whose new folder may lie there by now.

    It is renamed first, since without its claim it would be taken for files of unknown origin. The lock is that of one claim: whoever gets
    it next finds that claim gone. Processes of another host do not come here (they cannot know that `owner` is dead), so it may be a lock
    that they do not see; a file system that has none leaves a window of microseconds.
    """
    gone = beside(folder, "gone")
    remove(gone)  # of a dead process that had our number
    with suppress(FileNotFoundError), open(folder / CLAIM, "r+b") as claim:
        with suppress(OSError):
            fcntl.flock(claim, fcntl.LOCK_EX)
        if _owner(folder) == owner:
            os.rename(folder, gone)
    remove(gone)


def _owner(folder: Path) -> dict[str, Any] | None:
    path = folder / CLAIM
    return read_json_object(path)


def _commit(folder: Path, about: dict[str, Any], claim: dict[str, Any]) -> None:
    """The claim stays until the manifest is there: hashing takes long, and an unclaimed folder would be taken over."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p != folder / CLAIM)
    parts = {str(p.relative_to(folder)): {"bytes": p.stat().st_size, "sha256": sha256_file(p)} for p in files}
    for path in [*files, *(p for p in folder.rglob("*") if p.is_dir())]:
        sync(path)
    if _owner(folder) != claim:
        raise RuntimeError(f"{folder} was taken over by another process while this one wrote it")
    written = folder / f".{MANIFEST}.tmp"
    write_json(written, {"format": MANIFEST_FORMAT, "version": __version__, "time": time.time(), **about, "parts": parts})
    os.link(written, folder / MANIFEST)  # unlike a rename, a link refuses to replace what another process committed
    written.unlink()
    (folder / CLAIM).unlink()
    sync(folder)
    sync(folder.parent)
