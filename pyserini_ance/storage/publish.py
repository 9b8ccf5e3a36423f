"""Folders that are complete or absent: filled under a hidden name, then renamed into place.

A published folder has a manifest with the hash of every file, whose existence is the commit.
"""

import errno
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pyserini_ance import __version__
from pyserini_ance.storage import files
from pyserini_ance.storage.locks import LockHeld, locked

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1
log = logging.getLogger(__name__)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder to fill; rename it to `folder` at the end, remove it after an error.

    Another process that makes `folder` is waited for. Raises FileExistsError when `folder` is then not empty.
    """
    target = Path(os.path.realpath(folder))
    target.parent.mkdir(parents=True, exist_ok=True)
    with files.unfinished(target) as temporary:
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(f"{folder} exists and is not empty; remove it or pass another folder")
        if temporary.exists():  # FileExistsError would say that `folder` exists
            cure = "left over; end the process that writes there, or remove it by hand"
            raise OSError(errno.ENOTEMPTY, cure, str(temporary))
        temporary.mkdir()
        try:
            yield temporary
        except SafetensorError as error:  # safetensors reports a full disk so
            raise OSError(f"{folder} could not be written: {error}") from error
        umask = os.umask(0o077)  # it can be read only by setting it
        os.umask(umask)
        for path in [*temporary.rglob("*"), temporary]:
            if path.is_file():  # for readers other than its owner: safetensors writes 0600
                path.chmod(0o666 & ~umask)
            files.sync(path)
        os.rename(temporary, target)
        files.sync(target.parent)


def is_complete(folder: Path) -> bool:
    """Whether `folder` was published: its manifest exists."""
    return (folder / MANIFEST).exists()


@contextmanager
def publishing(folder: Path, about: dict[str, Any]) -> Iterator[Path]:
    """Yield a folder to fill, which becomes `folder` with a manifest: `about`, and each file's size and hash.

    Raises as `whole_folder` does, OSError when a file cannot be written.
    """
    with whole_folder(folder) as temporary:
        yield temporary
        parts = {}
        for path in sorted(path for path in temporary.rglob("*") if path.is_file()):
            entry = {"bytes": path.stat().st_size, "sha256": files.sha256_file(path)}
            parts[str(path.relative_to(temporary))] = entry
        record = {"format": MANIFEST_FORMAT, "version": __version__, "time": time.time(), **about}
        files.write_json(temporary / MANIFEST, {**record, "parts": parts})


def publish_once(folder: Path, about: dict[str, Any], fill: Callable[[Path], None]) -> None:
    """Return when `folder` is complete: made from what `fill` writes into a folder, here or elsewhere.

    Raises PermissionError, with the cure, for a cache that cannot be written.
    """
    if is_complete(folder):
        return
    check_cache(folder)
    files.remove_leftovers(folder.parent)  # unlike a run directory, a cache is not swept elsewhere
    try:
        with publishing(folder, about) as temporary:
            fill(temporary)
    except FileExistsError:
        if not is_complete(folder):
            raise


def read_manifest(folder: Path, verify: bool = True, within: str = "") -> dict[str, Any]:
    """Read the manifest of a complete folder; `verify` compares every file's hash with it, not only its size.
    Files whose names do not begin with `within` are not looked at.

    Raises FileNotFoundError when the folder was never completed, RuntimeError when a file is missing or
    differs.
    """
    path = folder / MANIFEST
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} is not complete: it has no {MANIFEST}. Remove the folder and make it again."
        )
    manifest = files.read_json(path)
    if manifest.get("format") != MANIFEST_FORMAT:
        raise RuntimeError(
            f"{path} has format {manifest.get('format')!r}, this version reads {MANIFEST_FORMAT}"
        )
    parts = {folder / name: entry for name, entry in manifest["parts"].items() if name.startswith(within)}
    for file, entry in parts.items():
        is_whole = file.exists() and file.stat().st_size == entry["bytes"]
        if not is_whole or (verify and files.sha256_file(file) != entry["sha256"]):
            raise RuntimeError(
                f"{file} is not what {path} says was written; remove {folder} and make it again"
            )
    return manifest


def remove_parts(folder: Path, names: Collection[str]) -> None:
    """Remove files from a complete folder, which stays complete: the manifest forgets them first."""
    manifest = files.read_json(folder / MANIFEST)
    parts = {name: entry for name, entry in manifest["parts"].items() if name not in names}
    if len(parts) < len(manifest["parts"]):
        files.write_json(folder / MANIFEST, {**manifest, "parts": parts})
    for name in names:
        (folder / name).unlink(missing_ok=True)


def check_cache(folder: Path) -> None:
    """Raise PermissionError, with the cure, if `folder` of the cache, which need not exist, is read-only."""
    existing = next(one for one in [folder.absolute(), *folder.absolute().parents] if one.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(
            errno.EACCES,
            "the cache cannot be written; choose another one with the setting `cache` (cache=FOLDER, "
            "--cache FOLDER) or with XDG_CACHE_HOME",
            str(folder),
        )


def leased(folder: Path) -> AbstractContextManager[None]:
    """Keep `folder` from being removed while the block runs. It need not exist, but its parent must."""
    return locked(files.beside(folder, "reading"), shared=True, what=str(folder))


def remove_unless_leased(folder: Path) -> bool:
    """Remove the folder unless a process reads it; return whether it is gone now."""
    with suppress(LockHeld), locked(files.beside(folder, "reading"), patience_seconds=0):
        removed = files.beside(folder, "removed")
        files.remove(removed)
        if folder.exists():
            os.rename(folder, removed)  # a folder that is removed in part would look like a damaged one
            files.remove(removed)
        return True
    log.info("%s is kept: it is being read", folder)
    return False
