"""Folders that are complete or absent: committed by a manifest, or renamed into place at the end."""

import errno
import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pyserini_ance import __version__
from pyserini_ance.storage.claim import CLAIM, ClaimMonitor, is_held, new_claim, owner_of, touching
from pyserini_ance.storage.files import read_json, reset_mode, sha256_file, sync, write_json
from pyserini_ance.storage.liveness import (
    process_name,
    process_of,
    remove,
    remove_leftovers,
    temp_path,
    this_process,
)

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1
POLL_SECONDS = 0.5
log = logging.getLogger(__name__)


class AppearedConcurrently(FileExistsError):
    """Another process has made the folder while this one was making it."""


class BeingWritten(RuntimeError):
    """Another living process, or another thread of this one, has claimed the folder."""


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder to fill; rename it to `folder` at the end, remove it after an error.

    For folders that other programs read. Raises FileExistsError when `folder` is not empty,
    AppearedConcurrently when it is not empty at the end.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} exists and is not empty; remove it or pass another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = temp_path(folder, "tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # left by a dead process with the same pid
    temporary.mkdir()
    try:
        yield temporary
        for path in [*temporary.rglob("*"), temporary]:
            if path.is_file():
                reset_mode(path)
            sync(path)
        _move(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move(temporary: Path, folder: Path) -> None:
    try:
        os.rename(temporary, folder)
    except OSError as error:
        if folder.exists():
            raise AppearedConcurrently(f"{folder} was written by another process in the meantime") from error
        raise
    sync(folder.parent)


def is_complete(folder: Path) -> bool:
    """Whether `folder` was published: its manifest exists."""
    return (folder / MANIFEST).exists()


@contextmanager
def publishing(folder: Path, about: dict[str, Any]) -> Iterator[Path]:
    """Claim `folder`, let the caller fill it, then commit it with a manifest.

    The manifest holds `about`, and the size and hash of every file. The claim is touched every few seconds.
    A folder left by a dead process of this host is cleared and claimed again. An error inside removes the
    folder. Raises FileExistsError when the folder is complete already, BeingWritten when a living process or
    another thread works on it, OSError when a file cannot be written.
    """
    with new_claim() as claim:
        _claim(folder, claim)
        try:
            with touching(folder / CLAIM):
                yield folder
                _commit(folder, about, claim)
        except BaseException as error:
            if not is_complete(folder):
                with suppress(OSError):  # `error` is more informative
                    _remove(folder, claim)
            if isinstance(error, SafetensorError):  # safetensors reports a full disk so
                raise OSError(f"{folder} could not be written: {error}") from error
            raise


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Claim `folder`, which holds nothing else, while the block runs; it stands for work on other files.

    Raises BeingWritten when a living process or another thread has claimed it.
    """
    with new_claim() as claim:
        _claim(folder, claim)
        try:
            with touching(folder / CLAIM):
                yield
        finally:
            _remove(folder, claim)


@contextmanager
def claimed_in_turn(folder: Path) -> Iterator[None]:
    """Like `claimed`, once the process or thread that has claimed it lets go.

    Raises ClaimLost as `publish_once` does.
    """
    wait = _Wait(folder)
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(claimed(folder))
                break
            except BeingWritten:
                wait()
        yield


def publish_once(folder: Path, about: dict[str, Any], fill: Callable[[Path], None]) -> None:
    """Return when `folder` is complete: filled by `fill(folder)` here, or by another process or thread.

    Raises ClaimLost when that process is of another host and has not touched its claim for LOST_SECONDS.
    """
    wait = _Wait(folder)
    if not is_complete(folder):
        remove_leftovers(folder.parent)  # unlike a run directory, a cache is not swept elsewhere
    while not is_complete(folder):
        try:
            with publishing(folder, about):
                fill(folder)
        except BeingWritten:
            wait()
        except FileExistsError:
            if not is_complete(folder):
                raise


class _Wait:
    """Waits for the process or thread that has claimed a folder: a short time with each call."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._claim: ClaimMonitor | None = None

    def __call__(self) -> None:
        if self._claim is None:
            log.info("waiting for another process or thread, which works on %s", self._folder)
            self._claim = ClaimMonitor(self._folder)
        self._claim.check()
        time.sleep(POLL_SECONDS)


def read_manifest(folder: Path, verify: bool = True) -> dict[str, Any]:
    """Read the manifest of a complete folder; `verify` compares every file's hash with it, not only its size.

    Raises FileNotFoundError when the folder was never completed, RuntimeError when a file is missing or
    differs.
    """
    path = folder / MANIFEST
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} is not complete: it has no {MANIFEST}. Remove the folder and make it again."
        )
    manifest = read_json(path)
    if manifest.get("format") != MANIFEST_FORMAT:
        raise RuntimeError(
            f"{path} has format {manifest.get('format')!r}, this version reads {MANIFEST_FORMAT}"
        )
    for name, entry in manifest["parts"].items():
        file = folder / name
        if not file.exists():
            raise RuntimeError(
                f"{file} is missing, though {path} lists it; remove {folder} and make it again"
            )
        if file.stat().st_size != entry["bytes"] or (verify and sha256_file(file) != entry["sha256"]):
            raise RuntimeError(
                f"{file} is not what {path} says was written; remove {folder} and make it again"
            )
    return manifest


def remove_parts(folder: Path, names: Collection[str]) -> None:
    """Remove files from a complete folder, which stays complete: the manifest forgets them first."""
    manifest = read_json(folder / MANIFEST)
    parts = {name: entry for name, entry in manifest["parts"].items() if name not in names}
    if len(parts) < len(manifest["parts"]):
        write_json(folder / MANIFEST, {**manifest, "parts": parts})
    for name in names:
        (folder / name).unlink(missing_ok=True)


def clear_abandoned(directory: Path, dead: dict[str, Any] | None = None) -> None:
    """Remove the folders in `directory` that a dead process has claimed and not completed.

    Dead processes are those of this host that have ended, and `dead`, of any host, which the caller knows to
    have ended.
    """
    for folder in sorted(path for path in directory.glob("[!.]*") if path.is_dir()):
        owner = owner_of(folder)
        if owner is None or is_complete(folder):
            continue
        # `dead` may be a run that this process has left: claims of its other threads stay.
        known_dead = dead is not None and process_of(owner) == process_of(dead) != this_process()
        if known_dead or not is_held(owner):
            log.info("removing %s, left unfinished by %s, which has ended", folder, process_name(owner))
            _remove(folder, owner)


def _claim(folder: Path, claim: dict[str, Any]) -> None:
    """Rename a folder that holds `claim` to `folder`, which fails while that one is not empty.

    A folder is therefore never without an owner.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    claimed = temp_path(folder, "claim")
    shutil.rmtree(claimed, ignore_errors=True)  # left by a dead process with the same pid
    claimed.mkdir()
    try:
        write_json(claimed / CLAIM, claim)
        while not _renamed(claimed, folder):
            _clear_dead(folder)
    finally:
        shutil.rmtree(claimed, ignore_errors=True)


def _renamed(claimed: Path, folder: Path) -> bool:
    try:
        os.rename(claimed, folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _clear_dead(folder: Path) -> None:
    """Return when the folder may be free; raise when it is complete or its owner works on it.

    The claim is read before the names are listed: a process that commits, or whose folder is removed, in
    between has then left its manifest, or nothing. Listing also makes an NFS client forget that there was no
    manifest.
    """
    owner = owner_of(folder)
    names = set(_names(folder))
    if MANIFEST in names:
        raise FileExistsError(f"{folder} is complete already; remove it to make it again")
    if owner is None:
        if names and CLAIM not in names:
            raise RuntimeError(f"{folder} holds files of unknown origin (no {CLAIM}); remove the folder")
        return
    if is_held(owner):
        raise BeingWritten(
            f"{folder} is being written by process {owner['pid']} on {owner['host']}. "
            f"Wait for it, or, if that process has ended, remove the folder."
        )
    _remove(folder, owner)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _remove(folder: Path, owner: dict[str, Any]) -> None:
    """Remove what `owner` has claimed and will not complete, unless another process has replaced it by now.

    The folder is renamed first: without its claim it would look like files of unknown origin. The file lock
    belongs to one claim; the next process that gets it finds that claim gone. Processes of another host do
    not come here (they cannot know that `owner` is dead), so the lock need not be visible to them. A file
    system without locks leaves a window of microseconds.
    """
    renamed = temp_path(folder, "gone")
    remove(renamed)  # left by a dead process with the same pid
    with suppress(FileNotFoundError), open(folder / CLAIM, "r+b") as claim:
        with suppress(OSError):
            fcntl.flock(claim, fcntl.LOCK_EX)
        if owner_of(folder) == owner:
            os.rename(folder, renamed)
    remove(renamed)


def _commit(folder: Path, about: dict[str, Any], claim: dict[str, Any]) -> None:
    """Hash and sync every file, link the manifest, then remove the claim.

    Hashing takes long, and a folder without a claim would be taken over.
    """
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p != folder / CLAIM)
    parts = {str(p.relative_to(folder)): {"bytes": p.stat().st_size, "sha256": sha256_file(p)} for p in files}
    for path in files:
        reset_mode(path)
    for path in [*files, *(p for p in folder.rglob("*") if p.is_dir())]:
        sync(path)
    if owner_of(folder) != claim:
        raise RuntimeError(f"{folder} was taken over by another process while this one wrote it")
    temporary = folder / f".{MANIFEST}.tmp"
    write_json(
        temporary,
        {"format": MANIFEST_FORMAT, "version": __version__, "time": time.time(), **about, "parts": parts},
    )
    # Unlike a rename, a link fails when another process has committed.
    os.link(temporary, folder / MANIFEST)
    temporary.unlink()
    (folder / CLAIM).unlink()
    sync(folder)
    sync(folder.parent)
