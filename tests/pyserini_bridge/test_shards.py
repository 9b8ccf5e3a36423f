"""Shards: how a corpus is cut, which folders are joined and in what order, what Pyserini searches."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pyserini_ance.pyserini_bridge.shards import documents_in_shard, in_order, merge_folders
from pyserini_ance.pyserini_bridge.vector_files import write_index

MADE = {"encoder": "/a/model", "side_file_sha256": "5", "kind": "transformer", "precision": "fp32"}
SETTINGS = {"weights": "w", "corpus": "c", "tokens_per_batch": 8, "format": "faiss", "number_type": "fp32"}
VECTORS = np.random.default_rng(0).integers(-2, 3, (11, 4)).astype(np.float32)  # small numbers: many ties
IDS = [f"d{i}é" for i in range(11)]
BOUNDS = [0, 4, 5, 11]


def about(number: int) -> dict:
    rows = BOUNDS[number] - BOUNDS[number - 1]
    counts = {"documents": rows, "documents_of_all": 11, "rows": rows}
    return {**MADE, "shard": {"number": number, "of": 3, **SETTINGS, **counts}}


@pytest.fixture
def folders(tmp_path) -> list[Path]:
    """Three shards of eleven documents, and `whole`, the folder without shards."""
    made = []
    for number in (1, 2, 3):
        rows = slice(BOUNDS[number - 1], BOUNDS[number])
        made.append(tmp_path / f"shard{number}")
        write_index(VECTORS[rows], IDS[rows], made[-1], about(number))
    write_index(VECTORS, IDS, tmp_path / "whole", MADE)
    return made


def change(folder: Path, **settings) -> None:
    found = json.loads((folder / "encoder.json").read_text())
    found = {**found, **{key: value for key, value in settings.items() if key in MADE}}
    found["shard"] |= {key: value for key, value in settings.items() if key not in MADE}
    (folder / "encoder.json").write_text(json.dumps(found))


def test_merged_in_any_order_they_are_the_whole_folder_byte_by_byte(folders, tmp_path):
    assert merge_folders([folders[2], folders[0], folders[1]], tmp_path / "merged") == 11
    for name in ("index", "docid", "encoder.json"):
        assert (tmp_path / "merged" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    with pytest.raises(FileExistsError, match="merged exists and is not empty"):
        merge_folders(folders, tmp_path / "merged")


def test_the_path_of_the_encoder_may_differ(folders, tmp_path):
    change(folders[1], encoder="/b/model")
    assert merge_folders(folders, tmp_path / "merged") == 11


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": "v"}, "weights is v, not w"),
        ({"corpus": "d"}, "corpus is d, not c"),
        ({"precision": "bf16"}, "precision is bf16, not fp32"),
        ({"of": 4}, "of is 4, not 3"),
        ({"tokens_per_batch": 9}, "tokens_per_batch is 9, not 8"),
        ({"number": 1}, "shard1 and .*shard2 are both shard 1/3"),
        ({"documents": 2}, "the shards have 12 documents, the corpus 11"),
    ],
)
def test_foreign_and_doubled_shards_are_refused(folders, tmp_path, settings, message):
    change(folders[1], **settings)
    with pytest.raises(ValueError, match=message):
        merge_folders(folders, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_missing_shards_and_other_folders_are_refused(folders, tmp_path):
    with pytest.raises(ValueError, match="shard 2/3 is missing; write it with `encode --shard 2/3`"):
        merge_folders([folders[0], folders[2]], tmp_path / "merged")
    with pytest.raises(ValueError, match="whole is not a shard"):
        merge_folders([*folders, tmp_path / "whole"], tmp_path / "merged")
    with pytest.raises(ValueError, match="shard1 is given twice"):
        merge_folders([*folders, folders[1] / ".." / "shard1"], tmp_path / "merged")
    damaged = folders[2] / "index"
    damaged.write_bytes(damaged.read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"shard3/index.* copy"):
        merge_folders(folders, tmp_path / "merged")
    damaged.write_bytes(b"IxHN" + damaged.read_bytes()[4:])
    with pytest.raises(ValueError, match="shard3/index"):
        merge_folders(folders, tmp_path / "merged")


def test_a_folder_holds_a_shard_or_is_in_the_way(folders, tmp_path):
    begun = {**MADE, "encoder": "/b/model", "shard": {"number": 1, "of": 3, **SETTINGS}}
    assert documents_in_shard(folders[0], begun) == 4
    assert documents_in_shard(tmp_path / "absent", begun) == 0
    (tmp_path / "empty").mkdir()
    assert documents_in_shard(tmp_path / "empty", begun) == 0
    with pytest.raises(FileExistsError, match=r"shard2 holds another shard: number is 2, not 1\. Remove it"):
        documents_in_shard(folders[1], begun)
    with pytest.raises(
        FileExistsError, match="shard1 holds another shard: precision is fp32, not bf16, weights"
    ):
        documents_in_shard(
            folders[0], {**begun, "precision": "bf16", "shard": {**begun["shard"], "weights": "v"}}
        )
    with pytest.raises(FileExistsError, match="whole exists and is not a shard"):
        documents_in_shard(tmp_path / "whole", begun)


def test_other_folders_keep_their_order(folders, tmp_path):
    assert in_order(folders[::-1]) == folders
    shutil.copytree(folders[0], tmp_path / "plain")
    (tmp_path / "plain/encoder.json").unlink()
    assert in_order([folders[2], tmp_path / "plain"]) == [folders[2], tmp_path / "plain"]


SEARCH_JOINED = """
import sys
from pathlib import Path
import faiss, numpy as np
from pyserini_ance.pyserini_bridge.shards import joined_index

whole, *folders = map(Path, sys.argv[1:])
expected = faiss.read_index(str(whole / "index"))
joined, ids = joined_index(folders)
assert ids == (whole / "docid").read_text(encoding="utf-8").split()
assert faiss.serialize_index(joined).tobytes() == faiss.serialize_index(expected).tobytes()
queries = np.eye(4, dtype=np.float32)
for k in (1, 3, 11):
    for found, other in zip(joined.search(queries, k), expected.search(queries, k)):
        assert (found == other).all()
"""


def test_joined_they_are_the_merged_index(child, folders, tmp_path):
    child(SEARCH_JOINED, tmp_path / "whole", folders[1], folders[2], folders[0])


def test_a_search_without_a_shard_says_so(child, folders):
    source = (
        "import sys; from pathlib import Path; from pyserini_ance.pyserini_bridge.shards import joined_index"
    )
    done = child(f"{source}; print(joined_index(list(map(Path, sys.argv[1:])))[0].ntotal)", *folders[1:])
    assert done.stdout == "7\n" and "shard 1/3 is missing: its documents are not found" in done.stderr


def test_vectors_of_different_sizes_are_refused(child, folders, tmp_path):
    write_index(VECTORS[:2, :3], IDS[:2], tmp_path / "small", {})
    source = (
        "import sys; from pathlib import Path; from pyserini_ance.pyserini_bridge.shards import joined_index"
    )
    done = child(
        f"{source}; joined_index(list(map(Path, sys.argv[1:])))", folders[0], tmp_path / "small", check=False
    )
    assert "small has vectors of 3 numbers, but" in done.stderr


SEARCH = """
import sys
from pathlib import Path
from pyserini_ance.pipeline.corpus_encoding import VectorFormat, encode_corpus
from pyserini_ance.distributed.world import World
from pyserini_ance.pyserini_bridge.launcher import run_module
from pyserini_ance.vectors.shards import Shard

model, folder = map(Path, sys.argv[1:])
texts = [["red", "green", "blue"][i % 3] + " text" * (i % 5) for i in range(40)]  # each at least twice
lines = [f'{{"id": "{i}", "contents": "{text}"}}\\n' for i, text in enumerate(texts)]
(folder / "corpus.jsonl").write_text("".join(lines))
(folder / "topics.tsv").write_text("1\\tred text\\n2\\tblue\\n")
for name, shard in [("whole", None), *((f"s{n}", Shard(n, 3)) for n in (1, 2, 3))]:
    output, scratch = folder / name, folder / f"{name}.scratch"
    how = VectorFormat(), "fp32", 64, scratch, World(), shard
    encode_corpus(folder / "corpus.jsonl", model, output, *how)
for run, names in {"one": ["whole"], "several": ["s1", "s2", "s3"]}.items():
    files = ["--topics", str(folder / "topics.tsv"), "--output", str(folder / run), "--hits", "7"]
    indexes = [word for name in names for word in ("--index", str(folder / name))]
    run_module("pyserini.search.faiss", ["--encoder", str(model), *files, *indexes])
"""


def test_pyserini_searches_them_as_the_whole_index_ties_included(in_java, checkpoint, tmp_path):
    in_java(SEARCH, checkpoint("transformer"), tmp_path)
    lines = (tmp_path / "one").read_text().splitlines()
    assert (tmp_path / "several").read_text().splitlines() == lines and len(lines) == 14
    scores = [line.split()[4] for line in lines]
    assert len(set(scores)) < len(scores), "no tie was searched"
