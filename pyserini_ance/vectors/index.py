"""A Faiss index of any kind over document vectors: trained once, kept in a folder, searched by all processes together."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.storage.publish import publish_once, read_manifest
from pyserini_ance.vectors.faiss_library import import_faiss
from pyserini_ance.vectors.search import DOCUMENTS_PER_BLOCK
from pyserini_ance.vectors.shards import ShardedVectors

FLAT = "flat"  # no index of this kind: exact search in the vectors themselves
TRAINING_VECTORS = 1 << 17  # a product quantiser of 8 bits looks at half as many
PRODUCTS_FROM_DIMENSIONS = 16  # of a code's part of the vector: with fewer, Faiss itself makes none
FILE = "index"


def factory_and_search(index: str) -> tuple[str, str]:
    """`IVF64,Flat;nprobe=8` in a recipe: the factory string, and how its search is set, in the words of Faiss's ParameterSpace."""
    factory, _, search = index.partition(";")
    return factory, search


class FactoryIndex:
    """Searches what `make_index` has written in `folder`; processes share its pages, each searches for a part of the queries.

    `search` says how, for example `nprobe=8` or `efSearch=64`. Raises ValueError where the index knows no such thing.
    """

    def __init__(self, folder: Path, world: World, search: str = ""):
        faiss = import_faiss()

        self.index, self.world = faiss.read_index(str(folder / FILE), faiss.IO_FLAG_MMAP), world
        _set_search(self.index, search)

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
        faiss = import_faiss()
    except ImportError as error:
        raise RuntimeError(f"index {factory!r} needs faiss: python -m pip install faiss-cpu, or use index: {FLAT}") from error
    try:
        index = faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise _unfit(factory, f"of {dimension} dimensions", error) from error
    index.referenced_objects = [_prepare(part) for part in _parts(index)]  # faiss's own name for what must live as long as it
    return index


def check_index(dimension: int, index: str) -> None:
    """Raises ValueError when a recipe's index cannot be made over vectors of that dimension, or be searched as it says."""
    factory, search = factory_and_search(index)
    _set_search(new_index(dimension, factory), search)


def _set_search(index, search: str) -> None:
    faiss = import_faiss()

    try:
        faiss.ParameterSpace().set_index_parameters(index, search)
    except (RuntimeError, ValueError) as error:
        expected = "what this kind of index knows, as in IVF64,Flat;nprobe=8 or HNSW32;efSearch=64"
        raise ValueError(f"index search setting {search!r}: {_reason(error)}. Expected {expected}") from error


def _write(path: Path, vectors: ShardedVectors, factory: str, seed: int) -> None:
    faiss = import_faiss()

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


def _parts(index) -> Iterator:
    """The transforms before an index, and the index itself, as what they are."""
    faiss = import_faiss()

    index = faiss.downcast_index(index)
    while hasattr(index, "chain"):
        yield from (faiss.downcast_VectorTransform(index.chain.at(place)) for place in range(index.chain.size()))
        index = faiss.downcast_index(index.index)
    yield index


def _prepare(part):
    """Spare what serves nobody: warnings of few vectors a centroid, 20,000 lines for OPQ96 over 5,000 documents; the numbering of codes
    for a filter that is off, which takes seconds a code; and the search for codes of few dimensions vector by vector, which takes 20 times
    as long as matrix products. Rankings are Faiss's own but for rounding. Returns what must live as long as `part`.
    """
    faiss = import_faiss()

    quantizer = getattr(part, "pq", None)
    if isinstance(part, faiss.OPQMatrix):
        quantizer = part.pq = faiss.ProductQuantizer(part.d_out, part.M, 8)  # as it would make itself
    for clustering in (getattr(part, "cp", None), getattr(quantizer, "cp", None)):
        if clustering is not None:
            clustering.min_points_per_centroid = 1
    if hasattr(part, "do_polysemous_training"):
        part.do_polysemous_training = False
    if quantizer is not None and quantizer.dsub < PRODUCTS_FROM_DIMENSIONS:
        quantizer.assign_index = faiss.IndexFlatL2(quantizer.dsub)
        return quantizer, quantizer.assign_index
    return quantizer


def _unfit(factory: str, vectors: str, error: RuntimeError) -> ValueError:
    return ValueError(
        f"index {factory!r} cannot be made of these vectors {vectors}: {_reason(error)}. Expected {FLAT}, or a Faiss factory string such as "
        f"OPQ96,IVF1,PQ96: 96 must divide the dimension, and each code of 8 bits needs at least 256 documents"
    )


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[-1].rpartition("Error: ")[2]
