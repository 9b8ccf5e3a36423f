"""Shards: parts of a corpus, encoded separately, to be merged.

A shard is a folder of Faiss, Parquet or JSONL that says which part of which corpus it holds, and how it was
made: in `encoder.json`, of Parquet in the metadata of its files, as Anserini reads every file of a folder.
"""

import json
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyserini_ance.data.strings import Strings
from pyserini_ance.pyserini_bridge.vector_files import (
    JSONL_FILE,
    PARQUET_FILE,
    ParquetRows,
    parquet_metadata,
    read_index,
    write_index,
    write_parquet,
)
from pyserini_ance.storage.files import read_json_object, whole_file
from pyserini_ance.storage.publish import whole_folder
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.shards import Shard

ABOUT, SHARD = "encoder.json", "shard"
COPIED_BYTES = 1 << 20
COUNTS = {"documents", "documents_of_all", "rows"}  # known when a shard is encoded; the rest when it is begun


def read_about(folder: Path) -> dict[str, Any]:
    """What a shard says of itself, `shard` among its keys; empty for any other folder.

    Raises ValueError for a damaged Parquet file.
    """
    parquet = folder / PARQUET_FILE.format(0)
    if parquet.is_file():
        about = json.loads((parquet_metadata(parquet).metadata or {}).get(b"encoder", b"{}"))
    else:
        about = read_json_object(folder / ABOUT) or {}
    return about if SHARD in about else {}


def documents_in_shard(folder: Path, about: dict[str, Any]) -> int:
    """The documents of the shard in `folder`, if it has the settings of `about`; 0 if there is no folder.

    Raises FileExistsError if the folder holds anything else.
    """
    if not folder.exists() or not any(folder.iterdir()):
        return 0
    found = read_about(folder)
    if not found:
        raise FileExistsError(f"{folder} exists and is not a shard; remove it or pass another folder")
    if differing := _differing(found, about, COUNTS):
        raise FileExistsError(f"{folder} holds another shard: {differing}. Remove it or pass another folder")
    documents: int = found[SHARD]["documents"]
    return documents


def _differing(found: dict[str, Any], expected: dict[str, Any], apart_from: Collection[str]) -> str:
    """In words, the settings in which two shards differ.

    The paths of their encoders may differ, as machines do; `weights` tells the content.
    """
    found, expected = {**found, **found[SHARD]}, {**expected, **expected[SHARD]}
    keys = sorted((found.keys() | expected.keys()) - {*apart_from, SHARD, "encoder"})
    differing = [key for key in keys if found.get(key) != expected.get(key)]
    return ", ".join(f"{key} is {found.get(key)}, not {expected.get(key)}" for key in differing)


def merge_folders(folders: Sequence[Path], output: Path) -> int:
    """Join all shards of a corpus into the folder that `encode` writes without --shard.

    Returns the number of its rows. One block of vectors is in memory at a time. Raises ValueError for folders
    that are not the shards of one corpus in one format, FileExistsError if `output` is not empty.
    """
    for folder in folders:
        if not read_about(folder):
            raise ValueError(f"{folder} is not a shard: expected a folder that `encode --shard` wrote")
    folders = in_order(folders)
    about, shards = read_about(folders[0]), [read_about(folder)[SHARD] for folder in folders]
    if missing := _missing(folders):
        raise ValueError(
            f"shard {', '.join(missing)} is missing; write it with `encode --shard {missing[0]}`"
        )
    if (documents := sum(shard["documents"] for shard in shards)) != shards[0]["documents_of_all"]:
        raise ValueError(
            f"the shards have {documents} documents, the corpus {shards[0]['documents_of_all']}: they are of "
            "different versions of pyserini_ance. Encode all of them with one version"
        )
    merge = {"faiss": _merge_faiss, "parquet": _merge_parquet, "jsonl": _merge_jsonl}[about[SHARD]["format"]]
    merge(folders, output, {key: value for key, value in about.items() if key != SHARD})
    return sum(shard["rows"] for shard in shards)


def _merge_faiss(folders: Sequence[Path], output: Path, about: dict[str, Any]) -> None:
    vectors, ids = _joined(folders)
    write_index(vectors, ids, output, about)


def _merge_parquet(folders: Sequence[Path], output: Path, about: dict[str, Any]) -> None:
    files = [sorted(folder.glob("part-*.parquet")) for folder in folders]
    for folder, of_shard in zip(folders, files, strict=True):
        _check_rows(folder, len(ParquetRows(of_shard)))
    rows = ParquetRows([file for of_shard in files for file in of_shard])
    write_parquet(rows, rows.ids(), output, about, read_about(folders[0])[SHARD]["number_type"])


def _merge_jsonl(folders: Sequence[Path], output: Path, about: dict[str, Any]) -> None:
    files = [folder / JSONL_FILE for folder in folders]
    if absent := [file for file in files if not file.is_file()]:
        raise FileNotFoundError(f"{absent[0]} is missing; copy or encode its folder again")
    with whole_folder(output) as temporary, whole_file(temporary / JSONL_FILE) as merged:
        for path in files:
            rows = 0
            with open(path, "rb") as file:
                while block := file.read(COPIED_BYTES):
                    rows += block.count(b"\n")
                    merged.write(block)
            _check_rows(path.parent, rows)


def _check_rows(folder: Path, rows: int) -> None:
    expected = read_about(folder)[SHARD]["rows"]
    if rows != expected:
        raise ValueError(f"{folder} holds {rows} rows, expected {expected}; copy or encode it again")


def in_order(folders: Sequence[Path]) -> list[Path]:
    """Faiss folders in the order of their rows: shards by number; as given if one of them is not a shard.

    Raises ValueError if a folder is given twice, or shards are not of the same corpus, encoder and settings,
    or two are the same part.
    """
    if twice := [folder for folder, count in Counter(map(Path.resolve, folders)).items() if count > 1]:
        raise ValueError(f"{twice[0]} is given twice; give it once")
    abouts = {folder: read_about(folder) for folder in folders}
    if not all(abouts.values()):
        return list(folders)
    by_number: dict[int, Path] = {}
    for folder, about in abouts.items():
        if differing := _differing(about, abouts[folders[0]], {"number", "documents", "rows"}):
            raise ValueError(
                f"{folder} and {folders[0]} are not shards of one index: {differing}. Encode one of them "
                "again, with the settings of the other"
            )
        other = by_number.setdefault(about[SHARD]["number"], folder)
        if other != folder:
            raise ValueError(f"{other} and {folder} are both shard {_shard(folder)}; give one of them")
    return [by_number[number] for number in sorted(by_number)]


def _shard(folder: Path) -> Shard:
    return Shard(*(read_about(folder)[SHARD][key] for key in ("number", "of")))


def _missing(folders: Sequence[Path]) -> list[str]:
    """The shards that are not among `folders`, all of which are shards of one corpus."""
    present = set(map(_shard, folders))
    every = [Shard(number, _shard(folders[0]).of) for number in range(1, _shard(folders[0]).of + 1)]
    return [str(shard) for shard in every if shard not in present]


def _joined(folders: Sequence[Path]) -> tuple[ShardedVectors, Strings]:
    """The vectors and the ids of all rows. Raises ValueError if vectors have different sizes."""
    parts, ids = zip(*map(read_index, folders), strict=True)
    for folder, part in zip(folders, parts, strict=True):
        if part.shape[1] != parts[0].shape[1]:
            raise ValueError(
                f"{folder} has vectors of {part.shape[1]} numbers, but {folders[0]} of {parts[0].shape[1]}; "
                "encode one of them again, with the encoder of the other"
            )
    chunks = [chunk for of_part in ids for chunk in of_part.array.chunks]
    return ShardedVectors(parts), Strings(pa.chunked_array(chunks))
