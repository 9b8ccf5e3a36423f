"""Texts: the ids and fields of documents or queries, in memory or memory-mapped from an Arrow file.

A text may occur under several ids: the same query asked twice, copies of a document.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyserini_ance.storage.files import path_in_errors, save_array

ROWS_PER_BATCH = 4096


class Strings(Sequence[str]):
    """A read-only sequence of strings in an Arrow column of type `large_string`."""

    def __init__(self, array: pa.ChunkedArray):
        self.array = array

    @classmethod
    def of(cls, values: Sequence[str]) -> "Strings":
        if isinstance(values, Strings):
            return values
        return cls(pa.chunked_array([pa.array(values, pa.large_string())]))

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        return self.array[row].to_pylist() if isinstance(row, slice) else self.array[row].as_py()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), ROWS_PER_BATCH):
            yield from self[start : start + ROWS_PER_BATCH]

    def rows_of(self, strings: Iterable[str]) -> np.ndarray:
        """(n,) int64: the row of each of n strings, -1 for one that is not there. All rows are read once."""
        # Half a surrogate pair, which is never a stored string, can be looked up as bytes.
        wanted = pa.array([string.encode("utf-8", "surrogatepass") for string in strings], pa.large_binary())
        distinct = wanted.dictionary_encode()
        matches = pc.index_in(self.array.cast(pa.large_binary()), value_set=distinct.dictionary)
        rows = np.flatnonzero(matches.is_valid().to_numpy())
        row_of = np.full(len(distinct.dictionary), -1)
        row_of[matches.drop_null().to_numpy()] = rows
        return row_of[distinct.indices.to_numpy()]

    def first_repeat(self) -> tuple[int, int] | None:
        """The first row whose string occurs again, and the row of its next occurrence; None without any."""
        # By hashes: sorting the strings takes twice the memory.
        order, repeats = _equal_neighbours(np.fromiter(map(hash, self), np.int64, len(self)))
        pairs = zip(order[repeats].tolist(), order[repeats + 1].tolist(), strict=True)
        return min((pair for pair in pairs if self[pair[0]] == self[pair[1]]), default=None)


def _equal_neighbours(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows by hash, then ascending, and the positions there before a row with the same hash."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    return order, np.flatnonzero(ordered[1:] == ordered[:-1])


def compared_fields(fields: Sequence[str]) -> list[str]:
    """The fields that are equal in equal texts: title and text, or, where there is no text, all."""
    return [name for name in ("title", "text") if name in fields] if "text" in fields else list(fields)


def text_key(text: str) -> str:
    """The text without differences in case and blanks: people ask the same question in several spellings."""
    return " ".join(text.split()).casefold()


def hashes_of(columns: Sequence[Iterable[str]], count: int) -> np.ndarray:
    """(n,) int64: a hash of each of n texts, whose fields are in `columns`; other processes have others."""
    return np.fromiter(map(hash, zip(*columns, strict=True)), np.int64, count if columns else 0)


@dataclass(frozen=True, eq=False)
class SameTexts:
    """The rows of texts that occur several times.

    rows: (R,) int64, ascending: every row whose text another row has. firsts: (R,) int64, the first row with
    the text of each.
    """

    rows: np.ndarray
    firsts: np.ndarray

    @classmethod
    def among(cls, texts: "Texts", hashes: np.ndarray | None = None) -> "SameTexts":
        """Find the texts that agree in all `compared_fields`.

        hashes: (n,) int64, of the texts, as `hashes_of` gives them; None: of all texts, which are read. Texts
        with equal hashes are compared.
        """
        columns = [texts.columns[name] for name in compared_fields(list(texts.columns))]
        if hashes is None:
            hashes = hashes_of(columns, len(texts))
        order, repeated = _equal_neighbours(hashes)
        rows = order[np.union1d(repeated, repeated + 1)]  # by hash, then ascending
        firsts = np.empty(len(rows), np.int64)
        of_hash: dict[tuple[str, ...], int] = {}
        for index, row in enumerate(rows.tolist()):
            if index == 0 or hashes[row] != hashes[rows[index - 1]]:
                of_hash = {}
            firsts[index] = of_hash.setdefault(tuple(column[row] for column in columns), row)
        _, numbers, counts = np.unique(firsts, return_inverse=True, return_counts=True)
        several = counts[numbers] > 1
        rows, firsts = rows[several], firsts[several]
        ascending = np.argsort(rows)
        return cls(rows[ascending], firsts[ascending])

    def __len__(self) -> int:
        return len(self.rows)

    def first_of(self, rows: np.ndarray) -> np.ndarray:
        """The first row with the text of each of `rows`, of any shape; PADDING stays."""
        if not len(self):
            return rows
        places = np.searchsorted(self.rows, rows).clip(max=len(self) - 1)
        return np.where(self.rows[places] == rows, self.firsts[places], rows)

    def counts(self, firsts: np.ndarray) -> np.ndarray:
        """(n,) int64: how many rows have the text of each of the `firsts` (n,)."""
        ordered = np.sort(self.firsts)
        copies = np.searchsorted(ordered, firsts, side="right") - np.searchsorted(ordered, firsts)
        return np.maximum(copies, 1)


@dataclass(frozen=True, eq=False)
class Texts:
    """Documents or queries: each row has an id and a value of every field. Compare by `digest`.

    stored_digest: the digest of texts that were hashed when they were stored. path: the file that they are
    memory-mapped from. found_same: those that occur several times, if they were looked for before.
    """

    ids: Sequence[str]
    columns: Mapping[str, Sequence[str]]
    stored_digest: str = ""
    path: Path | None = None
    found_same: SameTexts | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} rows: {', '.join(self.columns)})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For `pickle`: another process maps texts that are in a file."""
        if self.path is None:
            return super().__reduce_ex__(protocol)
        return open_texts, (self.path.absolute(), self.digest)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> dict[str, str]:
        return {name: values[row] for name, values in self.columns.items()}

    def take(self, rows: Iterable[int]) -> list[dict[str, str]]:
        return [self[row] for row in rows]

    def subset(self, rows: Sequence[int] | np.ndarray) -> "Texts":
        """Select these rows and renumber them in the order given."""
        columns = {name: [values[row] for row in rows] for name, values in self.columns.items()}
        return Texts([self.ids[row] for row in rows], columns)

    def between(self, first: int, stop: int) -> "Texts":
        """The texts from row `first` to row `stop`, not copied if they are in Arrow columns."""
        ids, *columns = (Strings.of(each).array[first:stop] for each in (self.ids, *self.columns.values()))
        return Texts(Strings(ids), dict(zip(self.columns, map(Strings, columns), strict=True)))

    def columns_in_blocks(self, size: int) -> Iterator[list[Sequence[str]]]:
        """Iterate over the ids and the values of each field, `size` rows at a time."""
        for start in range(0, len(self), size):
            yield [values[start : start + size] for values in (self.ids, *self.columns.values())]

    def blocks(self, size: int) -> Iterator[list[dict[str, str]]]:
        """Iterate over the texts in blocks of `size`."""
        for _, *columns in self.columns_in_blocks(size):
            yield [dict(zip(self.columns, row, strict=True)) for row in zip(*columns, strict=True)]

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """The row of each id. It takes 100 bytes for each id; for many documents use `rows_of`."""
        return {id: row for row, id in enumerate(self.ids)}

    def rows_of(self, ids: Iterable[str]) -> np.ndarray:
        """(n,) int64: the row of each of n ids, -1 for an unknown one."""
        return Strings.of(self.ids).rows_of(ids)

    @cached_property
    def same(self) -> SameTexts:
        """The texts that occur several times; those of a file are stored next to it."""
        if self.found_same is not None:
            return self.found_same
        if self.path is not None and (stored := _same_file(self.path)).exists():
            return SameTexts(*np.load(stored))
        return SameTexts.among(self)

    @cached_property
    def digest(self) -> str:
        """sha256 over the field names, and over ids and fields, ROWS_PER_BATCH rows at a time."""
        if self.stored_digest:
            return self.stored_digest
        sha = _new_digest(self.columns)
        for block in self.columns_in_blocks(ROWS_PER_BATCH):
            for values in block:
                _add_strings(sha, pa.array(values, pa.large_string()))
        return sha.hexdigest()


Block = Sequence[Sequence[str]]  # ROWS_PER_BATCH ids, or fewer in the last, and as many values a field


def texts_of(fields: Sequence[str], blocks: Iterable[Block]) -> Texts:
    """Texts in memory, of at least one block."""
    return _opened(pa.Table.from_batches([_batch(fields, block) for block in blocks]))


def store_texts(fields: Sequence[str], blocks: Iterable[Block], path: Path) -> Texts:
    """Write texts into a new Arrow file, and map them from it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sha = _new_digest(fields)
    # Hashed here, since reading all texts of a file again would take memory for its pages.
    compared = [1 + list(fields).index(name) for name in compared_fields(fields)]
    hashes = [np.empty(0, np.int64)]
    schema = pa.schema([(name, pa.large_string()) for name in ("id", *fields)])
    with closing(pa.OSFile(os.fsencode(path), "wb")) as file:
        writer = pa.ipc.new_file(file, schema)
        for block in blocks:
            batch = _batch(fields, block)
            with path_in_errors(path):
                writer.write_batch(batch)
            for array in batch.columns:
                _add_strings(sha, array)
            hashes.append(hashes_of([block[position] for position in compared], len(batch)))
        with path_in_errors(path):
            writer.close()
            file.close()
    hashes = [np.concatenate(hashes)]  # the parts take as much again
    texts = open_texts(path, sha.hexdigest())
    return replace(texts, found_same=SameTexts.among(texts, hashes[0]))


def write_texts(path: Path, texts: Texts) -> None:
    """Write `texts` into a new file, and which of them occur several times into another one.

    Texts of a file are hard-linked, or copied if links fail.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    save_array(_same_file(path), np.stack([texts.same.rows, texts.same.firsts]))
    if texts.path is None:
        store_texts(list(texts.columns), texts.columns_in_blocks(ROWS_PER_BATCH), path)
        return
    try:
        os.link(texts.path, path)
    except OSError:
        shutil.copyfile(texts.path, path)


def _batch(fields: Sequence[str], block: Block) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.large_string()) for values in block], names=["id", *fields])


def _same_file(path: Path) -> Path:
    return path.with_suffix(".same.npy")


def open_texts(path: Path, digest: str) -> Texts:
    """Map the texts in a file that `store_texts` wrote; `digest` is theirs."""
    return _opened(pa.ipc.open_file(pa.memory_map(os.fsencode(path))).read_all(), digest, path)


def _opened(table: pa.Table, digest: str = "", path: Path | None = None) -> Texts:
    ids, *columns = map(Strings, table.columns)
    return Texts(ids, dict(zip(table.column_names[1:], columns, strict=True)), digest, path)


def _new_digest(fields: Iterable[str]) -> "hashlib._Hash":
    """The hash of texts with these fields, to which `_add_strings` adds ids and fields, block by block."""
    names = [name.encode() for name in fields]
    return sha256_of([str(len(names)).encode(), *names])


def sha256_of(chunks: Iterable[bytes]) -> "hashlib._Hash":
    """The hash of the chunks, each preceded by its length."""
    sha = hashlib.sha256()
    for chunk in chunks:
        sha.update(len(chunk).to_bytes(8, "little") + chunk)
    return sha


def _add_strings(sha: "hashlib._Hash", array: pa.Array) -> None:
    """Add the lengths in bytes, int64, and the UTF-8 text of an array of type `large_string` to a hash."""
    _, offsets, text = array.buffers()
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    sha.update(np.diff(bounds).tobytes())
    if text:
        sha.update(memoryview(text)[bounds[0] : bounds[-1]])
