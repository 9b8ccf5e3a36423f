"""A folder that other programs read: it appears under its name complete, or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyserini_ance.storage.beside import beside
from pyserini_ance.storage.files import sync


class WrittenMeanwhile(FileExistsError):
    """Another process has made the folder while this one was making it."""


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder beside `folder` to fill; rename it into place at the end, remove it after an error.

    Raises FileExistsError when `folder` holds something already, WrittenMeanwhile when it does so at the end.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} exists and is not empty; remove it or name another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = beside(folder, "tmp")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a dead process that had our number
    unfinished.mkdir()
    try:
        yield unfinished
        for path in [*unfinished.rglob("*"), unfinished]:
            sync(path)
        _move(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _move(unfinished: Path, folder: Path) -> None:
    try:
        os.rename(unfinished, folder)
    except OSError as error:
        if folder.exists():
            raise WrittenMeanwhile(f"{folder} was written by another process meanwhile") from error
        raise
    sync(folder.parent)
