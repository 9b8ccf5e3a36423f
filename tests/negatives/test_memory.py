"""The key `memory_gib`: mining over mapped vectors larger than it stays within it, and finds the same."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BOUND_GIB = 0.25
MINING = """
import json
import sys
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.prepared import AnchorSet, PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.filters.ranks_and_scores import RelativeMargin
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.recipe.models import Encoding
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.search import exact_search
from pyserini_ance.vectors.vector_store import VectorStore, read_vectors

BLOCKS, ROWS, DIMENSION, QUERIES = 10, 15_000, 768, 24
rng = np.random.default_rng(0)
store = VectorStore(Path(sys.argv[1]) / "vectors", BLOCKS * ROWS, DIMENSION, {})
block = rng.standard_normal((ROWS, DIMENSION), np.float32)
for number in range(BLOCKS):  # no two vectors are equal
    store.write(number * ROWS, block * np.float32(1 - number / 50))
queries = rng.standard_normal((QUERIES, DIMENSION), np.float32)
documents = rng.integers(0, BLOCKS * ROWS, 20 * QUERIES)
qrels = Qrels.of(np.repeat(np.arange(QUERIES), 20), documents, np.ones(len(documents)), QUERIES)
split = Split("train", Texts(list(map(str, range(QUERIES))), {"text": [""] * QUERIES}), qrels)
documents = Texts(list(map(str, range(BLOCKS * ROWS))), {"text": [""] * (BLOCKS * ROWS)})
data = PreparedData(Collection(documents, {"train": split}), None, {}, "train", "")
source = Ann(top_k=50, filters=(RelativeMargin(margin=0.05),), oversample=50)


class Mapped(Snapshot):
    query_vectors, document_vectors = queries, None


def kib(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def mine(encoding):
    snapshot = Mapped(None, "weights", data, encoding, None, "cpu", World())
    # Mapped anew: nothing of it is in memory.
    snapshot.document_vectors = ShardedVectors([read_vectors(store.folder, BLOCKS * ROWS, DIMENSION, {})])
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = kib("VmRSS")
    table = source.mine(snapshot, AnchorSet(split, "query", BLOCKS * ROWS))
    return table, (kib("VmHWM") - before) / 2**20


peaks, equal = {}, {}
for search in ("faiss", "torch"):
    exact_search(queries, block[:2000], 50, search)  # a library's own memory
    bounded, within = mine(Encoding(search=search, memory_gib=float(sys.argv[2])))
    free, without = mine(Encoding(search=search))
    peaks[search] = within, without
    equal[search] = bool(
        np.array_equal(bounded.candidates, free.candidates)
        and np.allclose(bounded.scores, free.scores, rtol=1e-5)
        and bounded.dropped == free.dropped
    )
print(json.dumps({"peaks": peaks, "equal": equal, "dropped": bounded.dropped}))
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux counts peaks anew")
def test_mining_over_mapped_vectors_stays_within_its_memory(tmp_path):
    """0.43 GiB of vectors within 0.25 GiB; without the key they are all in memory once."""
    done = subprocess.run(
        [sys.executable, "-c", MINING, tmp_path, str(BOUND_GIB)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["equal"] == {"faiss": True, "torch": True}
    assert found["dropped"]["known positives"] and found["dropped"]["relative_margin"]
    for library, (within, without) in found["peaks"].items():
        assert 0.4 * BOUND_GIB < within < 1.1 * BOUND_GIB < 0.4 < without, (library, found["peaks"])
