"""Texts as the files of a folder: written block by block, memory-mapped when they are opened."""

import hashlib
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import batched, chain
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Texts, add_to_digest
from pyserini_ance.data.lookup import RowsOfIds, hashes_of, write_rows
from pyserini_ance.data.strings import STRINGS_PER_BLOCK, Strings, StringsFile


@dataclass(frozen=True, eq=False)
class StoredTexts(Texts):
    """Texts that lie in `folder`."""

    folder: Path


class TextsWriter:
    """Writes texts into a new folder. Of each text it keeps the hash of its id in memory, 8 bytes.

    Columns go by number: their names need not fit a file system.
    """

    def __init__(self, folder: Path, fields: Sequence[str]):
        folder.mkdir(parents=True)
        self.folder, self.fields = folder, list(fields)
        self._ids = StringsFile(folder / "ids")
        self._columns = [StringsFile(folder / f"field{n}") for n in range(len(self.fields))]
        self._hashes: list[np.ndarray] = []
        self._open = ExitStack()
        for file in (self._ids, *self._columns):
            self._open.callback(file.close)
        self._sha = hashlib.sha256()
        add_to_digest(self._sha, [part.encode() for part in (str(len(self.fields)), *self.fields)])

    def append(self, ids: Sequence[str], columns: Sequence[Sequence[str]]) -> None:
        """The next block: ids, and of each field as many values."""
        encoded = [[value.encode() for value in values] for values in (ids, *columns)]
        self._hashes.append(hashes_of(encoded[0], len(ids)))
        add_to_digest(self._sha, chain.from_iterable(zip(*encoded, strict=True)))
        for file, values in zip((self._ids, *self._columns), encoded, strict=True):
            file.append(values)

    def finish(self) -> dict:
        """What `open_texts` must know beside the folder."""
        self.close()
        write_rows(self.folder / "ids", np.concatenate(self._hashes) if self._hashes else np.empty(0, np.uint64))
        return {"fields": self.fields, "digest": self._sha.hexdigest()}

    def close(self) -> None:
        """The files, which are no texts unless `finish` was called."""
        self._open.close()


def write_texts(folder: Path, texts: Texts) -> dict:
    """Write `texts` into a new folder; those that lie in another are linked, or copied where there are no links."""
    if isinstance(texts, StoredTexts):
        shutil.copytree(texts.folder, folder, copy_function=_link)
        return {"fields": list(texts.columns), "digest": texts.digest}
    with closing(TextsWriter(folder, list(texts.columns))) as writer:
        for block in batched(zip(texts.ids, *texts.columns.values(), strict=True), STRINGS_PER_BLOCK):
            ids, *columns = zip(*block, strict=True)
            writer.append(ids, columns)
        return writer.finish()


def open_texts(folder: Path, about: dict) -> StoredTexts:
    ids = Strings.open(folder / "ids")
    texts = StoredTexts(ids, {name: Strings.open(folder / f"field{n}") for n, name in enumerate(about["fields"])}, folder)
    # Cached properties: they are on disk, and working them out would read everything.
    vars(texts).update(digest=about["digest"], rows=RowsOfIds.open(folder / "ids", ids))
    return texts


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
