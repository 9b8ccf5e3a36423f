"""Folders that are not the shards of one whole; test_corpus_encoding.py joins those that are."""

import json
from pathlib import Path

import numpy as np
import pytest

from pyserini_ance.pyserini_bridge.vector_files import merge_folders, write_index

MADE = {"encoder": "/a/model", "side_file_sha256": "5", "precision": "fp32"}
SETTINGS = {"weights": "w", "corpus": "c", "tokens_per_batch": 8}
VECTORS = np.random.default_rng(0).integers(-2, 3, (11, 4)).astype(np.float32)  # small numbers: many ties
IDS = [f"d{i}é" for i in range(11)]
BOUNDS = [0, 4, 5, 11]


@pytest.fixture
def folders(tmp_path) -> list[Path]:
    """Three shards of eleven documents, and `whole`, the folder without shards."""
    made = []
    for number in (1, 2, 3):
        ids, rows = IDS[BOUNDS[number - 1] : BOUNDS[number]], VECTORS[BOUNDS[number - 1] : BOUNDS[number]]
        counts = {"documents": len(ids), "documents_of_all": 11, "rows": len(ids)}
        about = {**MADE, "shard": {"number": number, "of": 3, **SETTINGS, **counts}}
        made.append(tmp_path / f"shard{number}")
        write_index(rows, ids, made[-1], about)
    write_index(VECTORS, IDS, tmp_path / "whole", MADE)
    return made


def change(folder: Path, **settings) -> None:
    found = json.loads((folder / "encoder.json").read_text())
    found = {**found, **{key: value for key, value in settings.items() if key in MADE}}
    found["shard"] |= {key: value for key, value in settings.items() if key not in MADE}
    (folder / "encoder.json").write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({"weights": "v"}, "123", "weights is v, not w"),
        ({"precision": "bf16"}, "123", "precision is bf16, not fp32"),
        ({"number": 1}, "123", "shard1 and .*shard2 are both shard 1/3"),
        ({}, "13", "shard 2/3 is missing; write it with `encode --shard 2/3`"),
        ({}, "1123", "are both shard 1/3"),
    ],
)
def test_foreign_doubled_and_missing_shards_are_refused(folders, tmp_path, settings, given, message):
    change(folders[1], **settings)
    with pytest.raises(ValueError, match=message):
        merge_folders([folders[int(number) - 1] for number in given], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_other_and_damaged_folders_are_refused_and_the_path_of_the_encoder_may_differ(folders, tmp_path):
    with pytest.raises(ValueError, match="whole is not a shard"):
        merge_folders([*folders, tmp_path / "whole"], tmp_path / "merged")
    damaged = folders[2] / "index"
    content = damaged.read_bytes()
    for bad in (content[:-4], b"IxHN" + content[4:]):
        damaged.write_bytes(bad)
        with pytest.raises(ValueError, match="shard3/index"):
            merge_folders(folders, tmp_path / "merged")
    damaged.write_bytes(content)
    change(folders[1], encoder="/b/model")
    assert merge_folders(folders, tmp_path / "merged") == 11
