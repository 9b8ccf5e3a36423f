"""Vectors in files: what Faiss, Parquet and Pyserini read back, and never half-written."""

import json
import os
import tracemalloc
from functools import partial

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from sentence_transformers.util import quantize_embeddings

from pyserini_ance.pyserini_bridge import vector_files
from pyserini_ance.pyserini_bridge.vector_files import read_index, write_index, write_parquet
from pyserini_ance.vectors.encoding import ShardedVectors

SAME_BYTES = """
import sys
from pathlib import Path
import faiss
import numpy as np
from pyserini_ance.pyserini_bridge import vector_files
from pyserini_ance.vectors.encoding import ShardedVectors

folder = Path(sys.argv[1])
vector_files.ROWS_PER_BLOCK = 16
for rows, dimension in [(1, 1), (7, 5), (40, 64), (1000, 3)]:
    vectors = np.random.default_rng(rows).normal(size=(rows, dimension)).astype(np.float32)
    index = faiss.IndexFlatIP(dimension)
    index.add(vectors)
    faiss.write_index(index, str(folder / "faiss"))
    shards = ShardedVectors(np.array_split(vectors, 3))
    for name, given in [("array", vectors), ("shards", shards), ("double", vectors.astype(float))]:
        written = folder / f"{name}-{rows}"
        vector_files.write_index(given, [f"d{row}" for row in range(rows)], written, {})
        print(name, rows, (written / "index").read_bytes() == (folder / "faiss").read_bytes())
"""


def test_the_index_is_byte_by_byte_that_of_faiss(child, tmp_path):
    said = child(SAME_BYTES, tmp_path).stdout.split("\n")[:-1]
    assert len(said) == 12 and all(line.endswith(" True") for line in said), said


def test_a_folder_is_written_once_and_read_back(tmp_path):
    tmp_path /= os.fsdecode(b"not utf-8 \xe4")
    write_index(drawn(4), ["007", "7", "é", "d"], tmp_path / "index", {"encoder": "x"})
    assert (tmp_path / "index/docid").read_text(encoding="utf-8") == "007\n7\né\nd\n"
    assert json.loads((tmp_path / "index/encoder.json").read_text()) == {"encoder": "x"}
    read, ids = read_index(tmp_path / "index")
    np.testing.assert_array_equal(read, drawn(4))
    assert isinstance(read, np.memmap) and list(ids) == ["007", "7", "é", "d"] and ids[2] == "é"
    (tmp_path / "index/docid").write_bytes("007\r\n7 \r\né\t\nd".encode())  # Pyserini strips lines
    assert list(read_index(tmp_path / "index")[1]) == list(ids)
    with pytest.raises(FileExistsError, match="index exists and is not empty"):
        write_index(drawn(4), list("abcd"), tmp_path / "index", {})


def test_ids_that_a_run_cannot_carry_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"3 document ids are empty or contain blanks .*'b\\n', '', 'c d'"):
        write_index(drawn(4), ["a", "b\n", "", "c d"], tmp_path / "index", {})
    assert not list(tmp_path.iterdir())


def drawn(rows: int, dimension: int = 8) -> np.ndarray:
    return np.random.default_rng(rows).normal(size=(rows, dimension)).astype(np.float32)


def ids_of(rows: int) -> list[str]:
    return [f"é{row}" for row in range(rows)]


FACTORIES = """
import sys
from pathlib import Path
import faiss
import numpy as np
from pyserini_ance.pyserini_bridge.vector_files import write_index

folder, vectors = Path(sys.argv[1]), np.load(sys.argv[2])
ids, made = [str(row) for row in range(len(vectors))], []
for factory in ("HNSW8;efSearch=77", "IVF4,Flat;nprobe=4", "Truncate4,L2norm,SQ8"):
    write_index(vectors, ids, folder / factory, {}, factory)
    made.append(faiss.read_index(str(folder / factory / "index")))
graph, lists, cut = made
first = vectors[:, :4] / np.linalg.norm(vectors[:, :4], axis=1, keepdims=True)
scores, rows = cut.search(vectors[:5], 300)
print(np.abs(scores - np.take_along_axis(first[:5] @ first.T, rows, 1)).max() < 0.02)
print(graph.hnsw.efSearch, lists.nprobe, graph.metric_type == faiss.METRIC_INNER_PRODUCT)
print((lists.search(vectors[:5], 10)[1] == np.argsort(-vectors[:5] @ vectors.T, kind="stable")[:, :10]).all())
"""


def test_a_factory_string_with_its_search_settings(child, tmp_path):
    np.save(tmp_path / "vectors.npy", drawn(300))
    said = child(FACTORIES, tmp_path, tmp_path / "vectors.npy").stdout.splitlines()
    assert said == ["True", "77 4 True", "True"]


@pytest.mark.parametrize(("number_type", "expected"), [("fp32", np.float32), ("fp16", np.float16)])
def test_parquet_shards_hold_the_vectors(tmp_path, monkeypatch, number_type, expected):
    monkeypatch.setattr(vector_files, "ROWS_PER_FILE", 40)
    monkeypatch.setattr(vector_files, "ROWS_PER_BLOCK", 16)
    vectors, about = drawn(100), {"encoder": "x"}
    shards = ShardedVectors(np.array_split(vectors, 3))
    write_parquet(shards, ids_of(100), tmp_path / "out", about, number_type)
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == [f"part-0000{number}.parquet" for number in range(3)]
    tables = [pyarrow.parquet.read_table(file) for file in files]
    assert [table.num_rows for table in tables] == [40, 40, 20]
    assert json.loads(tables[2].schema.metadata[b"encoder"]) == about
    table = pyarrow.concat_tables(tables)
    assert table.column_names == ["docid", "vector"] and table["docid"].to_pylist() == ids_of(100)
    read = np.stack(table["vector"].to_numpy())
    assert read.dtype == expected
    np.testing.assert_array_equal(read, vectors.astype(expected))
    column = pyarrow.parquet.ParquetFile(files[0]).schema.column(1)
    assert column.path == "vector.list.element"  # what Anserini reads


@pytest.mark.parametrize("precision", ["int8", "ubinary"])
def test_quantized_parquet_is_that_of_sentence_transformers(tmp_path, monkeypatch, precision):
    monkeypatch.setattr(vector_files, "ROWS_PER_FILE", 40)
    monkeypatch.setattr(vector_files, "ROWS_PER_BLOCK", 16)
    vectors = drawn(100, dimension=12)
    write_parquet(vectors, ids_of(100), tmp_path / "out", {}, precision)
    table = pyarrow.parquet.read_table(tmp_path / "out")
    read = np.stack(table["vector"].to_numpy())
    expected = quantize_embeddings(vectors, precision=precision)
    assert read.dtype == expected.dtype
    np.testing.assert_array_equal(read, expected)
    if precision == "int8":
        lowest, highest = np.array(json.loads(table.schema.metadata[b"ranges"]))
        decoded = lowest + (read + 128.5) * (highest - lowest) / 255
        np.testing.assert_allclose(decoded @ vectors[0], vectors @ vectors[0], atol=0.1)


@pytest.mark.parametrize("write", [write_parquet, write_index])
def test_ids_and_vectors_that_do_not_match_leave_nothing(tmp_path, write):
    for count in (4, 6):
        with pytest.raises(ValueError, match="document ids, but"):
            write(drawn(5), ids_of(count), tmp_path / "out", {})
        assert not list(tmp_path.iterdir())


class Watched:
    """Rows that are made when they are asked for; `most` of them at a time."""

    shape, most = (1 << 11, 256), 0

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        self.most = max(self.most, rows.stop - rows.start)
        return np.full((rows.stop - rows.start, self.shape[1]), rows.start, np.float32)


@pytest.mark.parametrize(
    ("write", "value", "found"),
    [
        (write_index, np.nan, "nan"),
        (partial(write_index, index="SQ8"), np.nan, "nan"),
        (write_parquet, -np.inf, "-inf"),
        (write_parquet, np.inf, "inf"),
        (partial(write_parquet, number_type="fp16"), 1e5, "inf"),  # beyond float16
    ],
)
def test_what_is_not_finite_is_not_written(tmp_path, write, value, found):
    vectors = drawn(4)
    vectors[2, 1] = value
    with pytest.raises(ValueError, match=f"the vector of 'c' is {found} in dimension 1; expected finite num"):
        write(vectors, ["a", "b", "c", "d"], tmp_path / "out", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [write_parquet, write_index])
def test_one_block_is_in_memory(tmp_path, monkeypatch, write):
    monkeypatch.setattr(vector_files, "ROWS_PER_BLOCK", 1 << 7)
    vectors, pool, ids = Watched(), pyarrow.system_memory_pool(), ids_of(1 << 11)
    before = pyarrow.default_memory_pool()
    pyarrow.set_memory_pool(pool)
    tracemalloc.start()
    write(vectors, ids, tmp_path / "out", {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    pyarrow.set_memory_pool(before)
    block = 4 * vectors.shape[1] << 7
    assert vectors.most == 1 << 7
    assert peak < 4 * block and pool.max_memory() < 8 * block  # all vectors are 16 blocks


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="index is missing; pass RUN/index"):
        read_index(tmp_path)
    write_index(drawn(20), ids_of(20), tmp_path / "index", {})
    index, docid = tmp_path / "index/index", tmp_path / "index/docid"
    for text, message in (
        ("\ufeffa\nb\na \n", "docid, line 3: id 'a' was already given in line 1; expected each id once"),
        ("a\n\nb\n", "1 document ids are empty or contain blanks"),
    ):
        docid.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            read_index(tmp_path / "index")
    docid.write_text("a\n")
    with pytest.raises(ValueError, match="1 document ids, but 20 vectors"):
        read_index(tmp_path / "index")
    index.write_bytes(index.read_bytes()[:-4])
    with pytest.raises(ValueError, match="damaged"):
        read_index(tmp_path / "index")
    index.write_bytes(b"IHNf" + bytes(100))
    with pytest.raises(ValueError, match=r"another kind \(b'IHNf'\)"):
        read_index(tmp_path / "index")
