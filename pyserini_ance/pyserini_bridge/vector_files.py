"""Vectors in the files of other programs: Faiss folders for Pyserini, and Parquet.

They are written block by block; flat Faiss folders are also read. A shard of a corpus is one that says in
`encoder.json` which part of which corpus it holds, and how it was made.
"""

import json
import os
import struct
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from pyserini_ance.data.formats.lines import Line
from pyserini_ance.data.texts import Strings
from pyserini_ance.encoders.encoder import check_finite
from pyserini_ance.pyserini_bridge.export import check_ids
from pyserini_ance.storage.files import read_json_object, whole_file, write_json, write_whole
from pyserini_ance.storage.publish import whole_folder
from pyserini_ance.vectors.encoding import Shard, ShardedVectors
from pyserini_ance.vectors.faiss_index import FLAT, write_index_file

ROWS_PER_BLOCK = 1 << 13  # 24 MiB of 768 dimensions
ROWS_PER_FILE = 1 << 18  # of Parquet: 0.8 GB of 768 dimensions; each thread of Anserini reads a file
INDEX_SEED = 42  # chooses the vectors that a compressed index is trained with
# The file of an IndexFlatIP: name, dimension, count, two unused numbers, "is trained", metric (0: inner
# product), and the count of the numbers that follow.
FLAT_NAME = b"IxFI"
HEADER = struct.Struct("<4siqqq?iQ")
UNUSED = 1 << 20
NumberType = Literal["fp32", "fp16", "int8", "ubinary"]
NUMBERS = {"fp32": pa.float32(), "fp16": pa.float16(), "int8": pa.int8(), "ubinary": pa.uint8()}
Rows = np.ndarray | ShardedVectors  # (N, D) float32


def write_index(
    vectors: Rows,
    ids: Sequence[str],
    folder: Path,
    about: dict[str, Any],
    index: str = FLAT,
    seed: int = INDEX_SEED,
) -> None:
    """Write a Faiss folder for Pyserini: `index` (inner product), `docid`, `encoder.json` (`about`).

    One block of vectors is in memory at a time, and Faiss's index unless it is flat: Faiss's own function
    needs all vectors in memory, and more while its index grows. index: `flat`, or a Faiss factory string as
    in a recipe's `final_evaluation.indexes` (`HNSW32;efSearch=64`), whose search settings are written into
    the index. The folder appears when it is complete. Raises ValueError for ids that runs cannot represent,
    if ids and vectors do not match, and for a factory that does not fit.
    """
    check_ids(ids, "document")
    _check_count(len(ids), len(vectors))
    with whole_folder(Path(folder)) as temporary:
        if index == FLAT:
            count, dimension = vectors.shape
            with whole_file(temporary / "index") as file:
                numbers = count * dimension
                file.write(HEADER.pack(FLAT_NAME, dimension, count, UNUSED, UNUSED, True, 0, numbers))
                for block, _ in _blocks(vectors, ids):
                    file.write(np.ascontiguousarray(block, "<f4").data)
        else:
            for _ in _blocks(vectors, ids):  # which checks them
                pass
            factory, _, search = index.partition(";")
            write_index_file(temporary / "index", vectors, factory, seed, search)
        write_whole(temporary / "docid", "".join(f"{id}\n" for id in ids))
        write_json(temporary / "encoder.json", about)


def write_parquet(
    vectors: Rows, ids: Sequence[str], folder: Path, about: dict[str, Any], number_type: NumberType = "fp32"
) -> None:
    """Write Parquet files `part-00000.parquet`, ... with the columns `docid` and `vector`, a list of numbers.

    vectors: (N, D) float32, of which one block is in memory at a time. `about` is JSON in the files' metadata
    under the key `encoder`: Anserini reads every file of a folder, of fp32 alone. The folder appears when it
    is complete. Raises ValueError if ids and vectors do not match.

    int8 and ubinary are those of sentence-transformers' `quantize_embeddings`, a byte for each number, or for
    8 signs. The metadata have under the key `ranges` the lowest and highest value (2, D) that int8 stand for.
    """
    _check_count(len(ids), len(vectors))
    metadata = {"encoder": json.dumps(about)}
    ranges: np.ndarray | None = None
    if number_type == "int8":
        bounds = np.array([[block.min(0), block.max(0)] for block, _ in _blocks(vectors, ids)])
        ranges = np.stack([bounds[:, 0].min(0), bounds[:, 1].max(0)])
        metadata["ranges"] = json.dumps(ranges.tolist())
    size = vectors.shape[1] if number_type != "ubinary" else -(-vectors.shape[1] // 8)
    kind = pa.list_(NUMBERS[number_type], size)
    schema = pa.schema({"docid": pa.string(), "vector": kind}, metadata=metadata)
    given = np.float16 if number_type == "fp16" else np.float32
    # Vectors hardly compress. Without a dictionary and statistics they are written as they are.
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": ["docid"]}
    with whole_folder(Path(folder)) as temporary:
        for number, first in enumerate(range(0, len(vectors), ROWS_PER_FILE)):
            # As bytes, pyarrow opens paths that are not UTF-8 too.
            path, end = os.fsencode(temporary / f"part-{number:05}.parquet"), first + ROWS_PER_FILE
            with pa.OSFile(path, "wb") as sink, pq.ParquetWriter(sink, schema, **plain) as file:
                for block, names in _blocks(vectors, ids, given, first, end):
                    if number_type == "int8" or number_type == "ubinary":
                        from sentence_transformers.util import quantize_embeddings

                        block = np.asarray(quantize_embeddings(block, precision=number_type, ranges=ranges))
                    columns = [
                        pa.array(names, pa.string()),
                        pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), type=kind),
                    ]
                    file.write_table(pa.Table.from_arrays(columns, schema=schema))


def _check_count(ids: int, vectors: int) -> None:
    if ids != vectors or not ids:
        raise ValueError(f"{ids} document ids, but {vectors} vectors")


def _blocks(
    vectors: Rows, ids: Sequence[str], kind: type = np.float32, first: int = 0, end: int | None = None
) -> Iterator[tuple[np.ndarray, Sequence[str]]]:
    """Blocks of `vectors` (B, D) from row `first` to row `end`, with their ids.

    Raises ValueError, with the id, for a value that is not finite, or that float16 cannot hold.
    """

    def name(row: int) -> str:
        return f"the vector of {ids[start + row]!r}"

    last = min(len(vectors), end or len(vectors))
    for start in range(first, last, ROWS_PER_BLOCK):
        stop = min(start + ROWS_PER_BLOCK, last)
        with np.errstate(over="ignore"):
            block: np.ndarray = np.ascontiguousarray(vectors[start:stop], kind)
        check_finite(block, name, "encode it again, or write fp32 numbers")
        yield block, ids[start:stop]


def read_index(folder: Path) -> tuple[np.ndarray, Strings]:
    """The vectors (N, D) float32 of a flat Faiss folder, a memory map, and its document ids.

    Raises FileNotFoundError for a folder without `index` or `docid`, ValueError for another kind of index,
    for files that do not match, and as `_read_ids` does.
    """
    path = folder / "index"
    for file in (path, folder / "docid"):
        if not file.is_file():
            raise FileNotFoundError(f"{file} is missing; pass RUN/index, or a folder written by `encode`")
    with open(path, "rb") as binary:
        header = binary.read(HEADER.size)
    if header[:4] != FLAT_NAME or len(header) < HEADER.size:
        raise ValueError(
            f"{path} is of another kind ({header[:4]!r}), which does not hold its vectors; expected a flat "
            "index of inner products, such as RUN/index"
        )
    _, dimension, count, *_ = HEADER.unpack(header)
    if path.stat().st_size != HEADER.size + 4 * count * dimension:
        raise ValueError(f"{path} is damaged: it has not the size that it names; copy it again")
    ids = _read_ids(folder / "docid")
    _check_count(len(ids), count)
    return np.memmap(path, np.float32, "r", HEADER.size, (count, dimension)), ids


def _read_ids(path: Path) -> Strings:
    """The ids in a file, one in a line, without the blanks that end a line, as Pyserini reads them.

    Raises ValueError for ids that repeat.
    """
    lines = csv.read_csv(
        pa.OSFile(os.fsencode(path)),
        csv.ReadOptions(column_names=["id"]),
        csv.ParseOptions(delimiter="\x1f", quote_char=False, ignore_empty_lines=False),
        csv.ConvertOptions(column_types={"id": pa.large_string()}, strings_can_be_null=False),
    )
    ids = Strings(pc.utf8_rtrim_whitespace(lines["id"]))
    check_ids(ids, "document")
    if repeat := ids.first_repeat():
        first, again = repeat
        problem = f"id {ids[first]!r} was already given in line {first + 1}"
        raise Line(path, again + 1, "").error(problem, "each id once", "copy the folder again")
    return ids


ABOUT, SHARD = "encoder.json", "shard"
COUNTS = {"documents", "documents_of_all", "rows"}  # known when a shard is encoded; the rest when it is begun


def read_about(folder: Path) -> dict[str, Any]:
    """What a shard says of itself, `shard` among its keys; empty for any other folder."""
    about = read_json_object(folder / ABOUT) or {}
    return about if SHARD in about else {}


def documents_in_shard(folder: Path, about: dict[str, Any]) -> int:
    """The documents of the shard in `folder`, if it has the settings of `about`; 0 if there is no folder.

    Raises FileExistsError if the folder holds anything else.
    """
    if not folder.exists() or not any(folder.iterdir()):
        return 0
    if not (found := read_about(folder)):
        raise FileExistsError(f"{folder} exists and is not a shard; remove it or pass another folder")
    if differing := _differing(found, about, COUNTS):
        raise FileExistsError(f"{folder} holds another shard: {differing}. Remove it or pass another folder")
    return int(found[SHARD]["documents"])


def _differing(found: dict[str, Any], expected: dict[str, Any], apart_from: Collection[str]) -> str:
    """In words, the settings in which two shards differ. The paths of their encoders may differ, as machines
    do; `weights` tells the content."""
    found, expected = {**found, **found[SHARD]}, {**expected, **expected[SHARD]}
    keys = sorted((found.keys() | expected.keys()) - {*apart_from, SHARD, "encoder"})
    differing = [key for key in keys if found.get(key) != expected.get(key)]
    return ", ".join(f"{key} is {found.get(key)}, not {expected.get(key)}" for key in differing)


def merge_folders(folders: Sequence[Path], output: Path) -> int:
    """Join all shards of a corpus, in any order, into the folder that `encode` writes without --shard.

    Returns the number of its rows. One block of vectors is in memory at a time. Raises ValueError for folders
    that are not all shards of one corpus, FileExistsError if `output` is not empty.
    """
    shards: dict[int, tuple[Path, dict[str, Any]]] = {}
    for folder in folders:
        if not (about := read_about(folder)):
            raise ValueError(f"{folder} is not a shard: expected a folder that `encode --shard` wrote")
        number, of = about[SHARD]["number"], about[SHARD]["of"]
        first = next(iter(shards.values()), (folder, about))
        if differing := _differing(about, first[1], {"number", "documents", "rows"}):
            cure = "Encode one of them again, with the settings of the other"
            raise ValueError(f"{folder} and {first[0]} are not shards of one index: {differing}. {cure}")
        if number in shards:
            both = f"{shards[number][0]} and {folder}"
            raise ValueError(f"{both} are both shard {Shard(number, of)}; give one of them")
        shards[number] = folder, about
    if missing := [str(Shard(n, of)) for n in range(1, of + 1) if n not in shards]:
        cure = f"write it with `encode --shard {missing[0]}`"
        raise ValueError(f"shard {', '.join(missing)} is missing; {cure}")
    about = shards[1][1]
    del about[SHARD]
    vectors, ids = zip(*(read_index(shards[number][0]) for number in sorted(shards)), strict=True)
    every_id = Strings(pa.chunked_array([chunk for strings in ids for chunk in strings.array.chunks]))
    write_index(ShardedVectors(vectors), every_id, output, about)
    return len(every_id)
