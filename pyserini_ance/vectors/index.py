"""A Faiss index of any kind over document vectors: trained once, kept in a folder, searched by all processes together."""

from pathlib import Path

import numpy as np
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.storage.publish import publish_once, read_manifest
from pyserini_ance.vectors.search import DOCUMENTS_PER_BLOCK
from pyserini_ance.vectors.shards import ShardedVectors

FLAT = "flat"  # no index of this kind: exact search in the vectors themselves
TRAINING_VECTORS = 1 << 17  # a product quantiser of 8 bits looks at half as many
FILE = "index"


class FactoryIndex:
    """Searches what `make_index` has written in `folder`; processes share its pages, each searches for a part of the queries."""

    def __init__(self, folder: Path, world: World):
        import faiss

        self.index, self.world = faiss.read_index(str(folder / FILE), faiss.IO_FLAG_MMAP), world

    def __call__(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """What the index makes of it, best first: scores (Q, k) float32, which are its own, and rows (Q, k) int32, -1 where it
        finds fewer. k is cut to all documents. Called by all processes with equal queries (Q, D).
        """
        own = np.array_split(np.ascontiguousarray(queries, np.float32), self.world.size)[self.world.rank]
        k = min(k, self.index.ntotal)
        scores, rows = self.index.search(own, k) if len(own) else (np.empty((0, k), np.float32), np.empty((0, k)))
        return self._gather(scores), self._gather(rows.astype(np.int32))

    def _gather(self, own: np.ndarray) -> np.ndarray:
        return np.concatenate([part.numpy() for part in self.world.gather(torch.from_numpy(own))])


def make_index(folder: Path, vectors: ShardedVectors, factory: str, seed: int, about: dict[str, str], world: World) -> None:
    """Publish the index that `factory` describes over `vectors` (N, D), by inner product, unless it is there.

    `about` says what the vectors are of; equal vectors and seeds make equal indexes. Called by all processes: the first makes it.
    Raises ValueError for a factory that cannot serve these vectors, RuntimeError without faiss.
    """
    about = {**about, "factory": factory, "seed": str(seed)}

    def make() -> None:
        publish_once(folder, about, lambda claimed: _write(claimed / FILE, vectors, factory, seed))
        manifest = read_manifest(folder, verify=False)
        if any(manifest[key] != value for key, value in about.items()):
            raise RuntimeError(f"{folder} is an index of something else than {about}; remove the folder")

    world.once(make)


def new_index(dimension: int, factory: str):
    """The empty index, trained on nothing yet. Raises as `make_index` does."""
    try:
        import faiss
    except ImportError as error:
        raise RuntimeError(f"index {factory!r} needs faiss: pip install 'pyserini_ance[cpu]', or use index: {FLAT}") from error
    try:
        index = faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise _unfit(factory, f"of {dimension} dimensions", error) from error
    inner = faiss.downcast_index(index)
    while hasattr(inner, "chain"):  # an OPQ before it
        inner = faiss.downcast_index(inner.index)
    if hasattr(inner, "do_polysemous_training"):
        # Only the numbering of the codes, for a filter that is off: rankings are the same, and training takes seconds a code less.
        inner.do_polysemous_training = False
    return index


def _write(path: Path, vectors: ShardedVectors, factory: str, seed: int) -> None:
    import faiss

    index = new_index(vectors.shape[1], factory)
    # The order is where the seed comes in: faiss's own generators start from constants.
    chosen = np.random.default_rng(seed).permutation(len(vectors))[:TRAINING_VECTORS]
    try:
        index.train(vectors[chosen])
        for first in range(0, len(vectors), DOCUMENTS_PER_BLOCK):
            index.add(np.ascontiguousarray(vectors[first : first + DOCUMENTS_PER_BLOCK]))
    except RuntimeError as error:
        raise _unfit(factory, f"({len(vectors)} of {vectors.shape[1]} dimensions)", error) from error
    faiss.write_index(index, str(path))


def _unfit(factory: str, vectors: str, error: RuntimeError) -> ValueError:
    reason = str(error).strip().splitlines()[-1].rpartition("Error: ")[2]
    return ValueError(
        f"index {factory!r} cannot be made of these vectors {vectors}: {reason}. Expected {FLAT}, or a Faiss factory string such as "
        f"OPQ96,IVF1,PQ96: 96 must divide the dimension, and each code of 8 bits needs at least 256 documents"
    )
