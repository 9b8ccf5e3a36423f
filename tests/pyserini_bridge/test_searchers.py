"""Searches by Pyserini's own searchers are timed one by one, in a process of their own."""

import json

CHILD = """
import json, sys
from pathlib import Path
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.pyserini_bridge.vector_files import write_index
from pyserini_ance.pyserini_bridge.searchers import time_bm25, time_dense
from pyserini_ance.pyserini_bridge.java import import_pyserini

model, folder = map(Path, sys.argv[1:])
texts = [f"text number {i}" for i in range(30)]
vectors = load_encoder(model).encode([{"title": "", "text": text} for text in texts], "document")
write_index(vectors, [str(i) for i in range(30)], folder / "faiss", {})
indexer = import_pyserini("pyserini.index.lucene").LuceneIndexer(str(folder / "lucene"))
indexer.add_batch_raw([json.dumps({"id": str(i), "contents": text}) for i, text in enumerate(texts)])
indexer.close()
queries = ["number 3", "text", "nothing"]
dense = time_dense(model, folder / "faiss", queries, 10)
print(json.dumps([dense, time_bm25(folder / "lucene", 0.9, 0.4, queries, 10)]))
"""


def test_by_model_and_by_bm25(in_java, checkpoint, tmp_path):
    dense, bm25 = json.loads(in_java(CHILD, checkpoint("transformer"), tmp_path).splitlines()[-1])
    assert len(dense) == len(bm25) == 3 and all(0 < milliseconds < 60_000 for milliseconds in dense + bm25)
