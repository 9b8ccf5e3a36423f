"""Files for Pyserini: refused when they could not be read back, and never half-written."""

import json
import tracemalloc

import numpy as np
import pytest

from pyserini_ance.pyserini_bridge.export import write_index, write_topics

WRITE_INDEXES = """
import sys
from pathlib import Path
import numpy as np
from pyserini_ance.pyserini_bridge.export import write_index

folder, vectors = Path(sys.argv[1]), np.arange(12, dtype=np.float32).reshape(4, 3)
blocks = iter([(0, vectors[:3]), (3, vectors[3:])])
write_index(blocks, ["007", "7", "é", "d"], folder / "good", {"encoder": "x"})

def fails(*arguments):
    try:
        write_index(*arguments, folder / "bad", {})
    except ValueError as error:
        print(error)

fails(vectors, ["a", "b\\n", "", "c d"])
fails(vectors, ["a", "b"])
fails(iter([(0, vectors[:2]), (3, vectors[3:])]), list("abcd"))
fails(vectors[:0], [])

def stops():
    yield 0, vectors
    raise ValueError("the disk is full")

fails(stops(), list("abcd"))
try:
    write_index(vectors, list("abcd"), folder / "good", {})
except FileExistsError as error:
    print(error)
import faiss
index = faiss.read_index(str(folder / "good/index"))
assert index.metric_type == faiss.METRIC_INNER_PRODUCT and (index.reconstruct_n(0, 4) == vectors).all()
"""

SAME_BYTES = """
import sys
from pathlib import Path
import faiss
import numpy as np
from pyserini_ance.pyserini_bridge import export
from pyserini_ance.vectors.encoding import ShardedVectors

folder = Path(sys.argv[1])
for rows, dimension in [(1, 1), (7, 5), (40, 64), (1000, 3)]:
    vectors = np.random.default_rng(rows).normal(size=(rows, dimension)).astype(np.float32)
    index = faiss.IndexFlatIP(dimension)
    index.add(vectors)
    faiss.write_index(index, str(folder / "faiss"))
    expected = (folder / "faiss").read_bytes()
    export.ROWS_PER_BLOCK = 16
    shards = ShardedVectors(np.array_split(vectors, 3))
    blocks = iter([(0, vectors[:1]), (1, vectors[1:])])
    double = vectors.astype(float)
    for name, given in [("array", vectors), ("shards", shards), ("blocks", blocks), ("double", double)]:
        written = folder / f"{name}-{rows}"
        export.write_index(given, [f"d{row}" for row in range(rows)], written, {})
        print(name, rows, (written / "index").read_bytes() == expected)
"""


def test_the_index_is_byte_by_byte_that_of_faiss(child, tmp_path):
    said = child(SAME_BYTES, tmp_path).stdout.split("\n")[:-1]
    assert len(said) == 16 and all(line.endswith(" True") for line in said), said


def test_the_index_is_written_block_by_block(tmp_path):
    """A block is on disk before the next is asked for, and no more than a few are ever in memory."""
    rows, dimension = 4096, 256
    written, header = [], 45  # bytes before the first vector

    def blocks():
        for start in range(0, 16 * rows, rows):
            written.extend(path.stat().st_size for path in tmp_path.rglob("*index*") if path.is_file())
            yield start, np.full((rows, dimension), start, np.float32)

    tracemalloc.start()
    write_index(blocks(), [str(row) for row in range(16 * rows)], tmp_path / "index", {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = 4 * rows * dimension
    assert [seen for seen in written if seen > header] == [header + size * block for block in range(1, 16)]
    assert (tmp_path / "index" / "index").stat().st_size == header + 16 * size
    assert peak < 4 * size + 16 * rows * 200  # and the ids


def test_write_index(child, tmp_path):
    said = child(WRITE_INDEXES, tmp_path).stdout.splitlines()
    assert (
        said[0].startswith("3 document ids are empty or contain blanks or line ends")
        and "'b\\n', '', 'c d'" in said[0]
    )
    assert said[1] == "2 document ids, but 4 vectors"
    assert said[2] == "a block of vectors starts at row 3, expected row 2"
    assert said[3] == "0 document ids, but 0 vectors"
    assert said[4] == "the disk is full" and "good exists and is not empty" in said[5]
    assert [path.name for path in tmp_path.iterdir()] == ["good"]
    assert (tmp_path / "good/docid").read_text(encoding="utf-8") == "007\n7\né\nd\n"
    assert json.loads((tmp_path / "good/encoder.json").read_text()) == {"encoder": "x"}


def test_topics_that_survive_are_tsv(tmp_path):
    assert write_topics([("q1", " What is it?  "), ("10", "two  blanks")], tmp_path).name == "topics.test.tsv"
    assert (tmp_path / "topics.test.tsv").read_text() == "q1\tWhat is it?\n10\ttwo  blanks\n"
    assert not (tmp_path / "topics.test.json").exists()


CHANGED = [("007", "x"), ("²", "x"), ("٣", "x"), ("q", "tab\tinside"), ("q", "two\nlines"), ("q", "\x01x")]


@pytest.mark.parametrize("query", CHANGED)
def test_topics_that_do_not_survive_are_json_too(tmp_path, query):
    assert write_topics([query, ("1", "y")], tmp_path).name == "topics.test.json"
    topics = json.loads((tmp_path / "topics.test.json").read_text())
    assert topics == {query[0]: {"title": query[1]}, "1": {"title": "y"}}
    assert len((tmp_path / "topics.test.tsv").read_text().splitlines()) == 2


def test_topics_under_a_path_that_pyserini_takes_for_cacm(tmp_path):
    (tmp_path / "cacm").mkdir()
    assert write_topics([("q", "x")], tmp_path / "cacm").suffix == ".json"


def test_query_ids_that_a_run_cannot_carry(tmp_path):
    with pytest.raises(ValueError, match=r"1 query ids .*'a b'"):
        write_topics([("a b", "x")], tmp_path)
    assert not list(tmp_path.iterdir())
