"""A Faiss index of any kind over document vectors: trained once, and searched by all processes together."""

import logging
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.random_streams import random_stream
from pyserini_ance.storage.files import utf8_path
from pyserini_ance.storage.publish import publish_once, read_manifest
from pyserini_ance.vectors.encoding import ShardedVectors
from pyserini_ance.vectors.faiss_library import FaissIndex, import_faiss
from pyserini_ance.vectors.search import DOCUMENTS_PER_BLOCK, has_room
from pyserini_ance.vectors.topk import ScoresAndRows

log = logging.getLogger(__name__)
# Exact search in the vectors themselves, without an index of this module. Other indexes are a factory string
# and, after a semicolon, settings of its search in the syntax of Faiss's ParameterSpace: IVF64,Flat;nprobe=8.
FLAT = "flat"
# Our own part of a factory string: `Truncate64,L2norm,SQ8` indexes the first 64 numbers of each vector.
TRUNCATE = "Truncate"
TRAINING_VECTORS = 1 << 17  # at least; a product quantiser of 8 bits uses half as many
VECTORS_PER_LIST = 39  # at least, as Faiss warns
# Dimensions of a code's part of the vector: with fewer, Faiss itself does not use matrix products.
MATRIX_PRODUCT_DIMENSIONS = 16
FILE = "index"
ID_BYTES = 8
MOST_HITS_ON_GPU = 2048  # per query, by Faiss's kernels


class FactoryIndex:
    """Searches what `make_index` has written in `folder`.

    Processes share its pages; each searches for a part of the queries.

    `search` sets how, for example `nprobe=8` or `efSearch=64`. Raises ValueError when the index does not know
    such a setting. On the GPU `device`, if Faiss has support for it and for the index, it is searched there.
    """

    def __init__(self, folder: Path, world: World, search: str = "", device: str = "cpu"):
        faiss = import_faiss()
        how = faiss.IO_FLAG_MMAP if faiss_gpu(device) is None else 0  # a GPU copies all of it
        with utf8_path(folder) as path:
            self.index, self.world = faiss.read_index(str(path / FILE), how), world
        _set_search(self.index, search)
        self.on_gpu = to_gpu(self.index, device, self.index.ntotal)

    def __call__(self, queries: torch.Tensor, k: int) -> ScoresAndRows:
        """The index's own scores (Q, k) float32 and rows (Q, k) int32, best first, -1 for missing results.

        k is cut to the number of documents. Called by all processes with equal queries (Q, D).
        """
        asked = np.ascontiguousarray(queries.cpu().numpy(), np.float32)
        own = np.array_split(asked, self.world.size)[self.world.rank]
        k = min(k, self.index.ntotal)
        index = self.index if self.on_gpu is None or k > MOST_HITS_ON_GPU else self.on_gpu
        scores, rows = index.search(own, k) if len(own) else (np.empty((0, k), np.float32), np.empty((0, k)))
        every_score, every_row = map(self.world.gather_rows, (scores, rows.astype(np.int32)))
        return torch.from_numpy(every_score), torch.from_numpy(every_row)


def faiss_gpu(device: str) -> int | None:
    """Faiss's number of the GPU `device`; None on a CPU, or if the installed Faiss does without GPUs."""
    where = torch.device(device)
    if where.type != "cuda" or not import_faiss().get_num_gpus():
        return None
    return torch.cuda.current_device() if where.index is None else where.index


def to_gpu(index: FaissIndex, device: str, vectors: int) -> FaissIndex | None:
    """A copy of an index with lists (IVF) on a GPU that has room for it with so many vectors, else None.

    Tables of a product quantiser are in fp16: in fp32 those of 96 codes do not fit a GPU's shared memory.
    """
    faiss, gpu = import_faiss(), faiss_gpu(device)
    if gpu is None or (lists := faiss.try_extract_index_ivf(index)) is None:
        return None
    if not has_room(size_bytes := vectors * (lists.code_size + ID_BYTES), device):
        log.info("an index of %.1f GiB does not fit the free memory of %s", size_bytes / 2**30, device)
        return None
    options = faiss.GpuClonerOptions()
    options.useFloat16 = True
    resources = faiss.StandardGpuResources()
    try:
        copy = faiss.index_cpu_to_gpu(resources, gpu, index, options)
    except RuntimeError as error:
        log.info("Faiss does without %s: %s", device, _reason(error))
        return None
    copy.referenced_objects = [resources]
    return copy


def make_index(
    folder: Path,
    vectors: ShardedVectors,
    factory: str,
    seed: int,
    about: dict[str, str],
    world: World,
    device: str = "cpu",
) -> None:
    """Publish the index that `factory` describes over `vectors` (N, D), by inner product, unless it exists.

    `about` says what the vectors are of; equal vectors and seeds make equal indexes. Called by all processes;
    the main process makes the index. Raises ValueError for a factory that does not fit these vectors,
    RuntimeError without faiss.
    """

    def make() -> None:
        made_from = {**about, "factory": factory, "seed": str(seed)}
        write = partial(write_index_file, vectors=vectors, factory=factory, seed=seed, device=device)
        publish_once(folder, made_from, lambda claimed: write(claimed / FILE))
        read_manifest(folder, verify=False)

    world.on_main(make)


def new_index(dimension: int, factory: str) -> FaissIndex:
    """Make an empty, untrained index. Raises as `make_index` does."""
    faiss = import_faiss()
    # A random rotation (RR) to as many numbers, whose matrix is replaced.
    kept = re.match(rf"{TRUNCATE}(\d+),", factory)
    theirs = factory if kept is None else factory.replace(TRUNCATE, "RR", 1)
    try:
        if kept and not 0 < int(kept[1]) <= dimension:
            raise RuntimeError(f"they have no {kept[1]} numbers")
        index = faiss.index_factory(dimension, theirs, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise _unfit(factory, f"of {dimension} dimensions", error) from error
    if kept:
        first = next(_components(index))
        faiss.copy_array_to_vector(np.eye(int(kept[1]), dimension, dtype=np.float32).ravel(), first.A)
        first.is_trained = True
    # Faiss's own name for objects that must live as long as the index.
    index.referenced_objects = [_prepare(component) for component in _components(index)]
    return index


def size_bytes(folder: Path) -> int:
    """The bytes of all codes in an index of `make_index`, or of its file where Faiss does not say."""
    with utf8_path(folder) as path:
        index = import_faiss().read_index(str(path / FILE), import_faiss().IO_FLAG_MMAP)
    try:
        return int(index.ntotal * index.sa_code_size())
    except RuntimeError:  # HNSW
        return (folder / FILE).stat().st_size


def check_index(dimension: int, index: str) -> None:
    """Raise ValueError when a recipe's `index` does not fit vectors of that dimension. The settings of its
    search are checked, too."""
    factory, _, search = index.partition(";")
    _set_search(new_index(dimension, factory), search)


def _set_search(index: FaissIndex, search: str) -> None:
    faiss = import_faiss()
    try:
        faiss.ParameterSpace().set_index_parameters(index, search)
    except (RuntimeError, ValueError) as error:
        expected = "a setting of this kind of index, as in IVF64,Flat;nprobe=8 or HNSW32;efSearch=64"
        raise ValueError(f"index search setting {search!r}: {_reason(error)}. Expected {expected}") from error


def write_index_file(
    path: Path,
    vectors: ShardedVectors | np.ndarray,
    factory: str,
    seed: int,
    search: str = "",
    device: str = "cpu",
) -> None:
    """Write the index of `vectors` (N, D) as Faiss's file, with `search` as the settings of its search.

    An index with lists is trained and filled on the GPU `device`, if `to_gpu` can. Faiss keeps the index in
    memory; vectors are read block by block. Raises as `make_index` does.
    """
    faiss = import_faiss()
    index = new_index(vectors.shape[1], factory)
    on_gpu = to_gpu(index, device, len(vectors))
    made = index if on_gpu is None else on_gpu
    # The seed chooses the training vectors and their order: faiss's own generators start from constants.
    shuffled = random_stream("index training vectors", seed).permutation(len(vectors))
    num_lists = max(getattr(one, "nlist", 0) for one in _components(index))
    try:
        made.train(vectors[shuffled[: max(TRAINING_VECTORS, VECTORS_PER_LIST * num_lists)]])
        for first in range(0, len(vectors), DOCUMENTS_PER_BLOCK):
            made.add(np.ascontiguousarray(vectors[first : first + DOCUMENTS_PER_BLOCK]))
    except RuntimeError as error:
        raise _unfit(factory, f"({len(vectors)} of {vectors.shape[1]} dimensions)", error) from error
    written = index if on_gpu is None else faiss.index_gpu_to_cpu(on_gpu)
    _set_search(written, search)
    with utf8_path(path.parent) as folder:
        faiss.write_index(written, str(folder / path.name))


def _components(index: FaissIndex) -> Iterator[Any]:
    """The transforms before an index, and the index itself, cast to their own classes.

    Of an index that scores candidates again, those of the index that finds them.
    """
    faiss = import_faiss()
    index = faiss.downcast_index(getattr(index, "base_index", index))
    while hasattr(index, "chain"):
        yield from (
            faiss.downcast_VectorTransform(index.chain.at(position)) for position in range(index.chain.size())
        )
        index = faiss.downcast_index(index.index)
    yield index


def _prepare(component: Any) -> Any:
    """Turn off work and warnings that are of no use here; return what must live as long as `component`.

    Turned off are warnings about few vectors per centroid (20,000 lines for OPQ96 over 5,000 documents), and
    the numbering of codes for a filter that is off, which takes seconds per code. Codes of few dimensions are
    searched by matrix products instead of vector by vector, which takes 20 times as long. Rankings equal
    Faiss's own up to rounding.
    """
    faiss = import_faiss()
    quantizer = getattr(component, "pq", None)
    if isinstance(component, faiss.OPQMatrix):
        # The same as Faiss would make itself.
        quantizer = component.pq = faiss.ProductQuantizer(component.d_out, component.M, 8)
    for clustering in (getattr(component, "cp", None), getattr(quantizer, "cp", None)):
        if clustering is not None:
            clustering.min_points_per_centroid = 1
    if hasattr(component, "do_polysemous_training"):
        component.do_polysemous_training = False
    if quantizer is not None and quantizer.dsub < MATRIX_PRODUCT_DIMENSIONS:
        quantizer.assign_index = faiss.IndexFlatL2(quantizer.dsub)
        return quantizer, quantizer.assign_index
    return quantizer


def _unfit(factory: str, vectors: str, error: RuntimeError) -> ValueError:
    return ValueError(
        f"index {factory!r} cannot be made of these vectors {vectors}: {_reason(error)}. Expected {FLAT}, "
        "or a Faiss factory string such as OPQ96,IVF1,PQ96: 96 must divide the dimension, and each code of "
        "8 bits needs at least 256 documents"
    )


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[-1].rpartition("Error: ")[2]
