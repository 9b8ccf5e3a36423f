"""Pyserini's feedback, fusion, batches, compressed and Lucene indexes and REST server, with our encoders."""

import json
import shutil
import sys
from urllib.parse import quote

import numpy as np
import pytest
from helpers.server import serving

from pyserini_ance.encoders.config import SIDE_FILE
from pyserini_ance.encoders.load_save import load_encoder

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta"]
FIRST = [f"{WORDS[i % 7]} {WORDS[i * i % 5]} {WORDS[i // 9]} number {i * i * 7919}" for i in range(60)]
TEXTS = [text * (1 + i % 3) for i, text in enumerate(FIRST)]
QUERIES = {f"q{i}": f"{word} {WORDS[i * 2 % 7]}" for i, word in enumerate(WORDS)}
POOL, HITS, ALPHA = 20, 10, 0.3
ROCCHIO = {"alpha": 0.4, "beta": 0.6, "gamma": 0.2, "topk": 3, "bottomk": 1}

SEARCHES = """
import json, sys
from pathlib import Path
import faiss
import numpy as np
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.pyserini_bridge.export import write_topics
from pyserini_ance.pyserini_bridge.java import import_pyserini
from pyserini_ance.pyserini_bridge.launcher import run_module
from pyserini_ance.pyserini_bridge.searchers import time_bm25, time_dense
from pyserini_ance.pyserini_bridge.vector_files import write_index, write_parquet

folder = Path(sys.argv[1])
texts, queries, pool, hits, alpha, rocchio = json.loads(sys.argv[2])
model, lucene, ids = str(folder / "model"), str(folder / "lucene"), [f"d{row}" for row in range(len(texts))]
encoder = load_encoder(folder / "model")
vectors = encoder.encode([{"text": text} for text in texts], "document")
for name, factory in {"flat": None, "hnsw": "HNSW8", "pq": "PQ8x4"}.items():
    write_index(vectors, ids, folder / name, {}, *([factory] if factory else []))
write_index(vectors, [f"d{row // 2}#{row % 2}" for row in range(len(texts))], folder / "passages", {})
coded = faiss.read_index(str(folder / "pq" / "index"))
np.save(folder / "decoded.npy", coded.reconstruct_n(0, coded.ntotal))
write_parquet(vectors, ids, folder / "parquet", {})
of_parquet = ["-collection", "ParquetDenseVectorCollection", "-input", str(folder / "parquet")]
for name, kind in {"lucene-flat": "Flat", "lucene-hnsw": "Hnsw"}.items():
    run_module(f"io.anserini.index.Index{kind}DenseVectors", [*of_parquet, "-index", str(folder / name)])
indexer = import_pyserini("pyserini.index.lucene").LuceneIndexer(args=["-index", lucene, "-storeRaw"])
indexer.add_batch_raw([json.dumps({"id": id, "contents": text}) for id, text in zip(ids, texts)])
indexer.close()
topics = str(write_topics(list(queries.items()), folder))
asked = encoder.encode([{"text": text} for text in queries.values()], "query")
as_text = str(write_topics(list(zip(queries, (str(row.tolist()) for row in asked))), folder, "vectors"))

def output(name, topics=topics, hits=hits):
    return ["--topics", topics, "--output", str(folder / f"{name}.txt"), "--hits", str(hits)]

def dense(index):
    return ["--encoder", model, "--index", str(folder / index)]

stock = ["--encoder-class", "auto", "--pooling", "mean", "--l2-norm"]
batched = ["--batch-size", "3", "--threads", "2"]
weighted = ["--prf-depth", "5", "--prf-method", "rocchio"]
weighted += [word for key, value in rocchio.items() for word in (f"--rocchio-{key}", str(value))]
for name, index, flags in [
    ("single", "flat", []), ("batched", "flat", batched), ("stock", "flat", stock),
    ("rocchio", "flat", weighted), ("rocchio batched", "flat", [*weighted, *batched]),
    ("hnsw", "hnsw", ["--ef-search", "64"]), ("pq", "pq", []),
]:
    run_module("pyserini.search.faiss", [*dense(index), *output(name), *flags])
run_module("pyserini.search.lucene", ["--index", lucene, "--bm25", *output("bm25", hits=pool)])
for name, how in [("hybrid", []), ("hybrid batched", batched)]:
    fusion = ["fusion", "--alpha", str(alpha), "--hits", str(pool)]
    sections = ["dense", *dense("flat"), "sparse", "--index", lucene, *fusion, "run"]
    run_module("pyserini.search.hybrid", [*sections, *output(name), *how])
for name in ("lucene-flat", "lucene-hnsw"):
    flags = ["--dense", f"--{name[7:]}", "--index", str(folder / name)]
    run_module("pyserini.search.lucene", [*flags, *output(name, as_text)])
times = time_dense(model, folder / "flat", list(queries.values()), 10)
times += time_bm25(lucene, 0.9, 0.4, list(queries.values()), 10)
(folder / "milliseconds.json").write_text(json.dumps(times))
"""


@pytest.fixture(scope="module")
def folder(in_java, checkpoint, tmp_path_factory):
    """The searches' runs, beside a model whose vectors `auto` computes only with the flags of its side file.

    The folder's name has the letters of Pyserini's class `ance`.
    """
    folder = tmp_path_factory.mktemp("finance")
    checkpoint(pooling="mean", normalize=True).rename(folder / "model")
    in_java(SEARCHES, folder, json.dumps([TEXTS, QUERIES, POOL, HITS, ALPHA, ROCCHIO]))
    return folder


@pytest.fixture(scope="module")
def vectors(folder):
    """Queries (7, D) and documents (60, D)."""
    encoder = load_encoder(folder / "model")
    asked = encoder.encode([{"text": text} for text in QUERIES.values()], "query")
    return asked, encoder.encode([{"text": text} for text in TEXTS], "document")


def read_run(path) -> dict[str, dict[str, float]]:
    """Document ids and scores by query, in the order of the file."""
    hits = {query: {} for query in QUERIES}
    for line in path.read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        hits[query][document] = float(score)
    return hits


def by_document(scores) -> dict[str, float]:
    return {f"d{row}": float(score) for row, score in enumerate(scores)}


def assert_best(found: dict[str, float], scores: dict[str, float], count: int = HITS):
    """`found` are `count` documents with the highest of `scores`; equal scores in any order."""
    assert len(found) == count
    np.testing.assert_allclose(list(found.values()), sorted(scores.values(), reverse=True)[:count], atol=1e-5)
    np.testing.assert_allclose(list(found.values()), [scores[document] for document in found], atol=1e-5)


@pytest.mark.parametrize("name", ["single", "batched", "stock", "hnsw"])
def test_all_queries_find_what_exact_search_finds(folder, vectors, name):
    asked, documents = vectors
    for vector, found in zip(asked, read_run(folder / f"{name}.txt").values(), strict=True):
        assert_best(found, by_document(documents @ vector))


def test_searches_are_timed_one_by_one(folder):
    times = json.loads((folder / "milliseconds.json").read_text())
    assert len(times) == 2 * len(QUERIES) and all(milliseconds > 0 for milliseconds in times)


def test_a_compressed_index_scores_its_decoded_vectors(folder, vectors):
    asked, documents = vectors[0], np.load(folder / "decoded.npy")
    assert not np.allclose(documents, vectors[1], atol=1e-3)
    for vector, found in zip(asked, read_run(folder / "pq.txt").values(), strict=True):
        assert_best(found, by_document(documents @ vector))


def moved(vector, best):
    """Rocchio (Li et al. 2023, arXiv:2108.11044), the last of the first 5 documents as the negative one."""
    towards = ROCCHIO["beta"] * best[: ROCCHIO["topk"]].mean(axis=0)
    return ROCCHIO["alpha"] * vector + towards - ROCCHIO["gamma"] * best[4]


@pytest.mark.parametrize("name", ["rocchio", "rocchio batched"])
def test_pseudo_relevance_feedback_moves_our_query_vectors(folder, vectors, name):
    asked, documents = vectors
    for vector, found in zip(asked, read_run(folder / f"{name}.txt").values(), strict=True):
        best = documents[np.argsort(-documents @ vector, kind="stable")]
        assert_best(found, by_document(documents @ moved(vector, best)))


@pytest.mark.parametrize("name", ["hybrid", "hybrid batched"])
def test_hybrid_search_adds_bm25_to_our_scores(folder, vectors, name):
    """A document that one of the searches has not found gets the lowest score of that search."""
    asked, documents = vectors
    sparse = read_run(folder / "bm25.txt")
    assert any(len(hits) == POOL for hits in sparse.values())
    for (query, found), vector in zip(read_run(folder / f"{name}.txt").items(), asked, strict=True):
        dense = by_document(documents @ vector)
        dense = {document: dense[document] for document in sorted(dense, key=dense.get)[-POOL:]}
        other = sparse[query]
        low, least = min(dense.values()), min(other.values())
        assert_best(found, {d: dense.get(d, low) + ALPHA * other.get(d, least) for d in dense | other})


@pytest.mark.parametrize("name", ["lucene-flat", "lucene-hnsw"])
def test_lucenes_vector_indexes_score_a_dot_product_as_its_half_plus_a_half(folder, vectors, name):
    asked, documents = vectors
    for vector, found in zip(asked, read_run(folder / f"{name}.txt").values(), strict=True):
        assert_best(found, by_document((1 + documents @ vector) / 2))


def test_the_rest_server_searches_with_our_encoder(folder, vectors):
    """Also for documents over the vectors of their passages."""
    shutil.copytree(folder / "model", folder / "maxp")
    settings = json.loads((folder / "maxp" / SIDE_FILE).read_text())
    settings["tokenization"]["document"]["passages"] = 2
    (folder / "maxp" / SIDE_FILE).write_text(json.dumps(settings))
    served = "{{path: {}, index_type: faiss, encoder: {}, base_index: text}}\n".format
    lines = ["indexes:\n  text: lucene\n", f"  ours: {served('flat', folder / 'model')}"]
    lines.append(f"  maxp: {served('passages', folder / 'maxp')}")
    (folder / "server.yaml").write_text("".join(lines))
    flags = ["--config", str(folder / "server.yaml"), "--no-prebuilt-indexes", "--host", "127.0.0.1"]
    command = [sys.executable, "-m", "pyserini_ance", "search", "rest", *flags]
    with serving(command, folder / "server.log") as answer:
        asked = [f"search?query={quote(text)}&hits={HITS}" for text in QUERIES.values()]
        found = {index: [answer(f"v1/{index}/{one}") for one in asked] for index in ("ours", "text", "maxp")}
    bm25 = read_run(folder / "bm25.txt")
    for place, (query, vector) in enumerate(zip(QUERIES, vectors[0], strict=True)):
        lists = {index: answers[place]["candidates"] for index, answers in found.items()}
        hits = {index: {hit["docid"]: hit["score"] for hit in listed} for index, listed in lists.items()}
        assert_best(hits["ours"], by_document(vectors[1] @ vector))
        assert_best(hits["text"], bm25[query])
        assert_best(hits["maxp"], by_document((vectors[1] @ vector).reshape(-1, 2).max(1)))
        first = found["ours"][place]["candidates"][0]
        assert TEXTS[int(first["docid"][1:])] in json.dumps(first["doc"])
