"""Shards: parts of a corpus, encoded separately, to be merged.

A shard is a flat Faiss folder that says in `encoder.json` which part of which corpus it holds, and how it was
made.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyserini_ance.data.texts import Strings
from pyserini_ance.pyserini_bridge import vector_files
from pyserini_ance.storage.files import read_json_object
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.shards import Shard

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
    parts = (vector_files.read_index(shards[number][0]) for number in sorted(shards))
    vectors, ids = zip(*parts, strict=True)
    every_id = Strings(pa.chunked_array([chunk for strings in ids for chunk in strings.array.chunks]))
    vector_files.write_index(ShardedVectors(vectors), every_id, output, about)
    return len(every_id)
