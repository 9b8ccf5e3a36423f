"""Vectors in the files of other programs: Faiss folders for Pyserini, Parquet, and Pyserini's JSONL.

They are written, and flat Faiss folders and Parquet read, block by block.
"""

import importlib.util
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from pyserini_ance.data.strings import Strings
from pyserini_ance.pyserini_bridge.export import check_ids
from pyserini_ance.storage.files import whole_file, write_json, write_whole
from pyserini_ance.storage.publish import whole_folder
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.faiss_index import FLAT, factory_and_search, write_index_file

if TYPE_CHECKING:
    import pyarrow.parquet

ROWS_PER_BLOCK = 1 << 13  # 24 MiB of 768 dimensions
ROWS_PER_FILE = 1 << 18  # of Parquet: 0.8 GB of 768 dimensions; each thread of Anserini reads a file
PARQUET_FILE, JSONL_FILE = "part-{:05}.parquet", "embeddings.jsonl"
INDEX_SEED = 42  # chooses the vectors that a compressed index is trained with
FLAT_NAME, HEADER = b"IxFI", struct.Struct("<4siqqq?iQ")  # of the file of an IndexFlatIP
NumberType = Literal["fp32", "fp16"]


@runtime_checkable
class Rows(Protocol):
    """An array, or an object such as ShardedVectors that reads rows like one."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> np.ndarray: ...


def require_faiss() -> None:
    """Raises RuntimeError without faiss, with which Pyserini searches the index; called before training
    instead of after."""
    if importlib.util.find_spec("faiss") is None:
        raise RuntimeError(
            "faiss is not installed: python -m pip install faiss-cpu, or faiss-gpu with an NVIDIA GPU, "
            "never both"
        )


def write_index(
    vectors: Rows | Iterable[tuple[int, np.ndarray]],
    ids: Sequence[str],
    folder: Path,
    about: dict[str, Any],
    index: str = FLAT,
) -> None:
    """Write a Faiss folder for Pyserini: `index` (inner product), `docid`, `encoder.json` (`about`).

    vectors: (N, D) float32, an array or an array-like object, or blocks (start row, (B, D) float32) in row
    order; a factory needs an array or ShardedVectors. One block is in memory at a time, and Faiss's index
    unless it is flat. index: `flat`, or a Faiss factory string as in a recipe's `final_evaluation.indexes`
    (`HNSW32;efSearch=64`), whose search settings are written into the index. The folder appears when it is
    complete. Raises ValueError for ids that runs cannot represent, if ids and vectors do not match, and for a
    factory that does not fit.
    """
    check_ids(ids, "document")
    with whole_folder(Path(folder)) as temporary:
        if index == FLAT:
            with whole_file(temporary / "index") as file:
                _write_flat(file, _blocks(vectors), len(ids))
        else:
            assert isinstance(vectors, (np.ndarray, ShardedVectors)), "a factory reads rows in any order"
            _check_count(len(ids), len(vectors))
            factory, search = factory_and_search(index)
            write_index_file(temporary / "index", vectors, factory, INDEX_SEED, search)
        write_whole(temporary / "docid", "".join(f"{id}\n" for id in ids))
        write_json(temporary / "encoder.json", about)


def write_parquet(
    vectors: Rows,
    ids: Iterable[str],
    folder: Path,
    about: dict[str, Any],
    number_type: NumberType = "fp32",
    rows_per_file: int = ROWS_PER_FILE,
) -> None:
    """Write Parquet files `part-00000.parquet`, ... with the columns `docid` and `vector`, a list of numbers.

    vectors: (N, D) float32, of which one block is in memory at a time. `about` is JSON in the files' metadata
    under the key `encoder`: Anserini reads every file of a folder. It does not read fp16. The folder appears
    when it is complete. Raises ValueError if ids and vectors do not match.
    """
    import pyarrow
    import pyarrow.parquet

    numbers = pyarrow.float32() if number_type == "fp32" else pyarrow.float16()
    fields = {"docid": pyarrow.string(), "vector": pyarrow.list_(numbers, vectors.shape[1])}
    schema = pyarrow.schema(fields, metadata={"encoder": json.dumps(about)})
    remaining = iter(ids)
    # Vectors hardly compress. Without a dictionary and statistics they are written as they are.
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": ["docid"]}
    with whole_folder(Path(folder)) as temporary:
        for number, first in enumerate(range(0, len(vectors), rows_per_file)):
            path = temporary / PARQUET_FILE.format(number)
            with pyarrow.parquet.ParquetWriter(path, schema, **plain) as file:
                for start, block in _blocks(vectors, first, first + rows_per_file):
                    file.write_table(_as_table(start, block, remaining, schema))
        _check_end(remaining, len(vectors))


def _as_table(start: int, block: np.ndarray, ids: Iterator[str], schema: "pyarrow.Schema") -> "pyarrow.Table":
    import pyarrow

    kind = schema.field("vector").type
    numbers = np.ascontiguousarray(block, kind.value_type.to_pandas_dtype()).reshape(-1)
    columns = [
        pyarrow.array(_take(ids, start, len(block)), pyarrow.string()),
        pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(numbers), type=kind),
    ]
    return pyarrow.Table.from_arrays(columns, schema=schema)


def parquet_metadata(path: Path) -> "pyarrow.parquet.FileMetaData":
    """Raises ValueError for a damaged file."""
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_metadata(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} is damaged: {error} Copy it again") from error


class ParquetRows:
    """The vectors (N, D) of files that `write_parquet` wrote, in their order; a slice of rows is read at a
    time.

    Raises ValueError for a damaged file.
    """

    def __init__(self, files: Sequence[Path]):
        metadata = [(path, parquet_metadata(path)) for path in files]
        self._groups = [(path, about, n) for path, about in metadata for n in range(about.num_row_groups)]
        self._starts = np.cumsum([0, *(about.row_group(n).num_rows for _, about, n in self._groups)])
        vector = metadata[0][1].schema.to_arrow_schema().field("vector").type
        self.shape = (int(self._starts[-1]), vector.list_size)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        first, last = np.searchsorted(self._starts, [rows.start, rows.stop - 1], side="right") - 1
        vectors = np.concatenate([self._vectors(group) for group in range(first, last + 1)])
        return vectors[rows.start - self._starts[first] :][: rows.stop - rows.start]

    def _vectors(self, group: int) -> np.ndarray:
        chunks = self._read(group, "vector").chunks
        return np.concatenate([chunk.flatten().to_numpy() for chunk in chunks]).reshape(-1, self.shape[1])

    def _read(self, group: int, column: str) -> "pyarrow.ChunkedArray":
        import pyarrow.parquet

        path, about, number = self._groups[group]
        with pyarrow.parquet.ParquetFile(path, metadata=about) as file:
            return file.read_row_group(number, [column])[column]

    def ids(self) -> Iterator[str]:
        for group in range(len(self._groups)):
            yield from self._read(group, "docid").to_pylist()


def write_jsonl(
    vectors: Rows,
    ids: Iterable[str],
    contents: Iterable[str],
    folder: Path,
    about: dict[str, Any] | None = None,
) -> None:
    """Write `embeddings.jsonl` as Pyserini's JsonlRepresentationWriter does, the file of `pyserini.encode`.

    vectors: (N, D) float32, of which one block is in memory at a time. contents: the text of each row. about:
    written as `encoder.json`. The folder appears when it is complete. Raises ValueError if ids and vectors do
    not match.
    """
    remaining, texts = iter(ids), iter(contents)
    with whole_folder(Path(folder)) as temporary:
        with whole_file(temporary / JSONL_FILE) as file:
            for start, block in _blocks(vectors):
                for id, vector in zip(_take(remaining, start, len(block)), block, strict=True):
                    record = {"id": id, "contents": next(texts), "vector": vector.tolist()}
                    file.write(json.dumps(record).encode() + b"\n")
            _check_end(remaining, len(vectors))
        if about:
            write_json(temporary / "encoder.json", about)


def _take(ids: Iterator[str], start: int, count: int) -> list[str]:
    taken = list(islice(ids, count))
    if len(taken) < count:
        raise ValueError(f"{start + len(taken)} document ids, but more vectors")
    return taken


def _check_end(ids: Iterator[str], count: int) -> None:
    _check_count(count + sum(1 for _ in ids), count)


def _check_count(ids: int, vectors: int) -> None:
    if ids != vectors or not ids:
        raise ValueError(f"{ids} document ids, but {vectors} vectors")


def read_index(folder: Path) -> tuple[np.ndarray, Strings]:
    """The vectors (N, D) float32 of a flat Faiss folder, a memory map, and its document ids.

    Raises FileNotFoundError for a folder without `index` or `docid`, ValueError for another kind of index and
    for files that do not match.
    """
    path = folder / "index"
    for file in (path, folder / "docid"):
        if not file.is_file():
            raise FileNotFoundError(f"{file} is missing; pass RUN/index, or a folder written by `encode`")
    expected = f"a flat index of inner products, such as RUN/index; {path} is "
    with open(path, "rb") as binary:
        header = binary.read(HEADER.size)
    if header[:4] != FLAT_NAME or len(header) < HEADER.size:
        raise ValueError(f"expected {expected}another kind ({header[:4]!r}), which does not hold its vectors")
    _, dimension, count, *_ = HEADER.unpack(header)
    if path.stat().st_size != HEADER.size + 4 * count * dimension:
        raise ValueError(f"expected {expected}damaged: it has not the size that it names; copy it again")
    raw = np.fromfile(folder / "docid", np.uint8)
    ends = np.flatnonzero(raw == ord("\n"))
    _check_count(len(ends), count)
    bounds = np.concatenate([[0], ends - np.arange(len(ends))])
    buffers = [pa.py_buffer(bounds), pa.py_buffer(raw[raw != ord("\n")])]
    ids = Strings(pa.chunked_array([pa.LargeStringArray.from_buffers(len(ends), *buffers)]))
    return np.memmap(path, np.float32, "r", HEADER.size, (count, dimension)), ids


def _write_flat(file: BinaryIO, blocks: Iterator[tuple[int, np.ndarray]], count: int) -> None:
    """Write `count` vectors as faiss.write_index writes an IndexFlatIP, byte by byte.

    Faiss's own function needs all vectors in memory, and more while its index grows.
    """
    rows = 0
    for start, block in blocks:
        if start != rows:
            raise ValueError(f"a block of vectors starts at row {start}, expected row {rows}")
        if start == 0:
            file.write(_flat_header(count, block.shape[1]))
        file.write(np.ascontiguousarray(block, "<f4").data)
        rows += len(block)
    _check_count(count, rows)


def _flat_header(count: int, dimension: int) -> bytes:
    """Name, dimension, count, two unused numbers, "is trained", metric (0: inner product), and the count of
    the numbers that follow."""
    unused = 1 << 20
    return HEADER.pack(FLAT_NAME, dimension, count, unused, unused, True, 0, count * dimension)


def _blocks(
    vectors: Rows | Iterable[tuple[int, np.ndarray]], first: int = 0, end: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """Blocks (start row, (B, D)) of `vectors`, of an array those from row `first` to row `end`."""
    if not isinstance(vectors, Rows):
        return iter(vectors)
    last = min(len(vectors), end or len(vectors))
    starts = range(first, last, ROWS_PER_BLOCK)
    return ((start, vectors[start : min(start + ROWS_PER_BLOCK, last)]) for start in starts)
