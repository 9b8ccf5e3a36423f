"""Export of a run for Pyserini's own code: a Faiss folder, topics, and the search command."""

import importlib.util
import json
import re
import shlex
import shutil
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np

from pyserini_ance.pyserini_bridge.java import choose_java
from pyserini_ance.pyserini_bridge.stock_class import StockChoice
from pyserini_ance.storage.files import whole_file, write_json, write_whole
from pyserini_ance.storage.publish import whole_folder

SHOWN = 5


def check_ids(ids: Sequence[str], what: str) -> None:
    """Raises ValueError for ids that are empty or contain blanks, because runs are split at blanks.

    what: `query` or `document`, for the message.
    """
    if bad := [id for id in ids if id.split() != [id]]:
        shown = ", ".join(map(repr, bad[:SHOWN]))
        raise ValueError(
            f"{len(bad)} {what} ids are empty or contain blanks or line ends, which runs cannot represent: "
            f"{shown}. "
            "Rename them."
        )


# A tab ends the text, a line end the record, and Java trims all characters up to the blank.
CHANGED_BY_TSV = re.compile(r"[\t\r\n]|\A[\x00- ]|[\x00- ]\Z")


def write_topics(queries: Sequence[tuple[str, str]], folder: Path, split: str = "test") -> Path:
    """Write the topics for Pyserini and return the file: `topics.SPLIT.tsv` or `topics.SPLIT.json`.

    The .json file is written if Pyserini would change ids or texts of the .tsv file.

    All topic readers except that of .json convert an id of digits to a number (007 becomes 7), and a .tsv
    under a path that contains `cacm` is read as that collection. Texts are stripped, as encoders strip them.
    """
    folder = Path(folder)
    check_ids([id for id, _ in queries], "query")
    tsv, exact = folder / f"topics.{split}.tsv", folder / f"topics.{split}.json"
    topics = {id: text.strip() for id, text in queries}
    write_whole(tsv, "".join(f"{id}\t{CHANGED_BY_TSV.sub(' ', text)}\n" for id, text in topics.items()))
    exact.unlink(missing_ok=True)
    survive = all(_id_survives(id) and not CHANGED_BY_TSV.search(text) for id, text in topics.items())
    if survive and "cacm" not in str(folder):
        return tsv
    # ASCII, because Pyserini opens the file in the encoding of the locale.
    write_whole(exact, json.dumps({id: {"title": text} for id, text in topics.items()}, indent=0) + "\n")
    return exact


def _id_survives(id: str) -> bool:
    """Whether an id is not changed by `int`. `isdigit` includes superscripts, which `int` rejects."""
    return not id.isdigit() or (id.isdecimal() and str(int(id)) == id)


def search_command(
    topics: Path, index: Path, output: Path, choice: StockChoice, hits: int, passages: int = 1
) -> str:
    """The shell command that searches with Pyserini: the stock module if possible, else this package's.

    The stock module must be able to start Java, and must reproduce the checkpoint. If documents have up to
    `passages` rows in the index, the search retrieves `passages` times as many rows.
    """
    stock = choice.reproduces_exactly and _stock_commands_run()
    program = ["pyserini.search.faiss"] if stock else ["pyserini_ance", "search", "faiss"]
    encoder = ["--encoder", choice.query_folder, "--encoder-class", choice.query_class, *choice.flags]
    files = ["--topics", topics, "--index", index, "--output", output]
    deep = (
        ["--hits", hits]
        if passages == 1
        else ["--hits", hits * passages, "--max-passage", "--max-passage-hits", hits]
    )
    return shlex.join(map(str, [python_program(), "-m", *program, *encoder, *files, *deep]))


def _stock_commands_run() -> bool:
    try:
        return choose_java().runs_stock_commands
    except RuntimeError:
        return False


def python_program() -> str:
    """`python` if it is in this interpreter's environment, else the interpreter's path."""
    path = shutil.which("python")
    return "python" if path and Path(path).parent == Path(sys.executable).parent else sys.executable


ROWS_PER_BLOCK = 1 << 13  # 24 MiB of 768 dimensions


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
    vectors: Rows | Iterable[tuple[int, np.ndarray]], ids: Sequence[str], folder: Path, about: dict[str, Any]
) -> None:
    """Write a Faiss folder for Pyserini: `index` (flat, inner product), `docid`, `encoder.json` (`about`).

    vectors: (N, D) float32, an array or an array-like object, or blocks (start row, (B, D) float32) in row
    order. One block is in memory at a time. The folder appears when it is complete. Raises ValueError for ids
    that runs cannot represent, and if ids and vectors do not match.
    """
    check_ids(ids, "document")
    with whole_folder(Path(folder)) as temporary:
        with whole_file(temporary / "index") as file:
            _write_flat(file, _blocks(vectors), len(ids))
        write_whole(temporary / "docid", "".join(f"{id}\n" for id in ids))
        write_json(temporary / "encoder.json", about)


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
    if rows != count or not count:
        raise ValueError(f"{count} document ids, but {rows} vectors")


def _flat_header(count: int, dimension: int) -> bytes:
    """Name, dimension, count, two unused numbers, "is trained", metric (0: inner product), and the count of
    the numbers that follow."""
    unused = 1 << 20
    return struct.pack("<4siqqq?iQ", b"IxFI", dimension, count, unused, unused, True, 0, count * dimension)


def _blocks(vectors: Rows | Iterable[tuple[int, np.ndarray]]) -> Iterator[tuple[int, np.ndarray]]:
    if isinstance(vectors, Rows):
        return (
            (start, vectors[start : start + ROWS_PER_BLOCK])
            for start in range(0, len(vectors), ROWS_PER_BLOCK)
        )
    return iter(vectors)
