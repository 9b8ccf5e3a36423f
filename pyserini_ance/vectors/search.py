"""Exact inner-product search in blocks, with equal results on torch and faiss."""

import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from numbers import Integral
from typing import Any, Literal

import numpy as np
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import check_finite, to_device
from pyserini_ance.encoders.hardware import processor, resolve_precision
from pyserini_ance.storage.progress import progress_bar
from pyserini_ance.vectors.bf16_scan import CpuScan, DeviceScan, best_of_candidates
from pyserini_ance.vectors.faiss_library import import_faiss
from pyserini_ance.vectors.topk import DOCUMENTS_PER_GROUP, ScoresAndRows, TopK, best_of

log = logging.getLogger(__name__)
QUERIES_PER_BLOCK = 512
DOCUMENTS_PER_BLOCK = 65_536
FAISS_DOCUMENTS_PER_BLOCK = 1 << 18  # which are not copied
SCORES_IN_CACHE = 1 << 22
NUMBERS_IN_CACHE = 1 << 20  # of document vectors, which a scan in bf16 centres and rounds there
RESIDENT_SHARE = 0.7  # of a GPU's free memory, for the vectors of all documents
CANDIDATES_PER_RESULT = 4  # of a search by the first numbers of vectors
SHOWN_AFTER_SECONDS = 1  # a progress bar for each step's search would only flicker

Backend = Literal["auto", "torch", "faiss"] | int
# (queries (Q, D) float32 on any device, k) -> scores float32 and rows int32, both (Q, k), best first
Searcher = Callable[[torch.Tensor, int], ScoresAndRows]


def resolve_backend(setting: Backend, device: str) -> Literal["torch", "faiss"]:
    """The library that searches: `auto` is faiss on a CPU, where it is 1.5 to 2.6 times as fast, if it is
    installed, and else torch. A number of dimensions is `auto`."""
    if isinstance(setting, str) and setting != "auto":
        return setting
    return "faiss" if torch.device(device).type == "cpu" and importlib.util.find_spec("faiss") else "torch"


def search(
    query_vectors: np.ndarray, document_vectors: np.ndarray, k: int, *, device: str = "cpu"
) -> tuple[np.ndarray, np.ndarray]:
    """The k documents of largest inner product per query: scores (Q, k) float32 and rows (Q, k) int32, best
    first. The checks before read each vector once.

    query_vectors (Q, D) and document_vectors (N, D) are float32; the documents may be a memory map. The
    search is exact, equal scores go to the smaller row, and every row is one of document_vectors: with fewer
    than k documents there are N columns instead of k. Raises ValueError for other shapes, a k below 1, and,
    naming the row, for NaN and infinite values: they have no rank, and documents that they are compared with
    would be missing.
    """
    if not isinstance(k, Integral) or k < 1:
        raise ValueError(f"k is {k!r}; expected a whole number from 1")
    queries = _matrix("query_vectors", query_vectors)
    documents = _matrix("document_vectors", document_vectors)
    if queries.shape[1] != documents.shape[1]:
        raise ValueError(
            f"query_vectors have {queries.shape[1]} dimensions, document_vectors {documents.shape[1]}; "
            "encode both with one encoder"
        )
    return search_arrays(searcher(documents, "auto", device, World()), queries, int(k))


def _matrix(name: str, vectors: Any) -> np.ndarray:
    """(N, D) float32, without a copy if it is that already; it may be a memory map."""
    if isinstance(vectors, torch.Tensor):  # numpy has no bfloat16
        vectors = vectors.detach().cpu().float()
    matrix = np.asarray(vectors, np.float32)
    if matrix.ndim != 2:
        raise ValueError(f"{name} has the shape {matrix.shape}; expected two dimensions, a row for each text")
    check_finite(matrix, lambda row: f"{name}: row {row}", "remove the row, or encode its text again")
    return matrix


def search_arrays(
    search: Searcher, queries: np.ndarray | torch.Tensor, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Call `search` for a caller that wants arrays: scores (Q, k) float32 and rows (Q, k) int32. The host
    waits for the results."""
    if not isinstance(queries, torch.Tensor):
        queries = as_tensor(np.ascontiguousarray(queries, np.float32))
    scores, rows = search(queries, k)
    return scores.cpu().numpy(), rows.cpu().numpy()


def has_room(size_bytes: int, device: str) -> bool:
    """Whether so many bytes of vectors leave a training step some of a GPU's free memory; on a CPU they take
    none."""
    if torch.device(device).type != "cuda":
        return True
    return size_bytes <= RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]


def as_tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor of the CPU that shares the memory of `array`, perhaps a memory map: it is never written to."""
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # about a map that is read-only
        return torch.from_numpy(array)


def searcher(documents: np.ndarray | torch.Tensor, backend: Backend, device: str, world: World) -> Searcher:
    """Return `search` over `documents`, from tensors to tensors: on a GPU nothing waits for values.

    Each search reads an array again, block by block, without a copy (faiss) or with one of
    DOCUMENTS_PER_BLOCK (torch); torch uses a tensor without one. By `auto`, many queries are searched with
    products in bf16, which a proof makes exact: in documents that a GPU holds, and on a CPU that multiplies
    in bf16. With a number as `backend`, candidates are found by so many first numbers of vectors.
    """
    if isinstance(backend, int):
        dimension, whole = backend, documents if isinstance(documents, torch.Tensor) else as_tensor(documents)
        first = whole[:, :dimension].contiguous()
        part = searcher(first if first.device.type != "cpu" else first.numpy(), "auto", device, world)

        def search_twice(queries: torch.Tensor, k: int) -> ScoresAndRows:
            k, asked = min(k, len(whole)), queries.to(whole.device)
            candidates = part(queries[:, :dimension], CANDIDATES_PER_RESULT * k)[1].to(whole.device)
            return best_of_candidates(asked, whole, candidates, k)

        return search_twice
    if resolve_backend(backend, device) == "faiss":
        array = np.asarray(documents, np.float32)
        fp32 = partial(_search_by_faiss, array, world)
        if backend != "auto" or not array.flags.c_contiguous or not processor().has_fast_bf16:
            return fp32
        size = max(1, NUMBERS_IN_CACHE // max(1, array.shape[1]))
        return partial(_search_by_bf16, CpuScan, as_tensor(array), world, size, fp32)
    fp32 = partial(_search_blocks, documents, device, world)
    is_fast = torch.device(device).type == "cuda" and resolve_precision("auto", device) == "bf16"
    if backend == "auto" and isinstance(documents, torch.Tensor) and is_fast:
        return partial(_search_by_bf16, DeviceScan, documents, world, DOCUMENTS_PER_BLOCK, fp32)
    return fp32


def _firsts(documents: int, size: int, world: World) -> Iterator[int]:
    """The first row of each block of `size` documents, with a progress bar."""
    settings = {"desc": "search", "unit": "block", "leave": False, "delay": SHOWN_AFTER_SECONDS}
    yield from progress_bar(iterable=range(0, documents, size), disable=not world.is_main, **settings)


def _search_blocks(
    documents: np.ndarray | torch.Tensor, device: str, world: World, queries: torch.Tensor, k: int
) -> ScoresAndRows:
    # The CPU would not wait for a copy to it.
    k, on_device = min(k, len(documents)), queries.to(device, non_blocking=str(device) != "cpu")
    where = on_device.device
    query_blocks = [block.T.contiguous() for block in on_device.split(QUERIES_PER_BLOCK)]
    best = [TopK(block.shape[1], k, where) for block in query_blocks]
    size, is_on_cpu = DOCUMENTS_PER_BLOCK, where.type == "cpu"
    if not is_on_cpu:
        # More for few queries on a GPU that holds all documents: the scores take the same memory.
        if isinstance(documents, torch.Tensor) and 0 < len(queries) < QUERIES_PER_BLOCK:
            size = size * QUERIES_PER_BLOCK // len(queries)
        # Whole groups, so that no block is copied to fill its last one.
        size = max(1, size // DOCUMENTS_PER_GROUP) * DOCUMENTS_PER_GROUP
    for first in _firsts(len(documents), size, world):  # each block is read, and moved to the device, once
        block = documents[first : first + size]
        if not isinstance(block, torch.Tensor):  # a GPU works on the block before, meanwhile
            block = torch.from_numpy(np.array(block)) if is_on_cpu else to_device(where, block)[0]
        for asked, best_of_block in zip(query_blocks, best, strict=True):
            # On the CPU in parts whose scores fit its cache.
            part = max(1, SCORES_IN_CACHE // max(1, asked.shape[1])) if is_on_cpu else len(block)
            for start in range(0, len(block), part):
                best_of_block.update(block[start : start + part] @ asked, first + start)
    scores, rows = zip(*(each.result() for each in best), strict=True)
    return torch.cat(scores), torch.cat(rows)


def _search_by_bf16(
    kind: type[DeviceScan] | type[CpuScan],
    documents: torch.Tensor,
    world: World,
    documents_per_block: int,
    fp32: Searcher,
    queries: torch.Tensor,
    k: int,
) -> ScoresAndRows:
    """Search with products in bf16 and a proof, or by `fp32`, the queries that have none."""
    k = min(k, len(documents))
    if not kind.pays(len(queries), documents, k):
        return fp32(queries, k)
    asked = queries.to(documents.device, non_blocking=documents.device.type != "cpu")
    scan = kind(documents, asked.split(QUERIES_PER_BLOCK), k)
    size = max(1, kind.blocks_at_once * documents_per_block // DOCUMENTS_PER_GROUP) * DOCUMENTS_PER_GROUP
    for first in _firsts(len(documents), size, world):
        scan.update(first, min(first + size, len(documents)))
    (scores, rows), is_proven = scan.result()
    unproven = (~is_proven).nonzero()[:, 0]
    log.info(
        "search of %d documents for %d queries on %s: in bf16, rescored in fp32; %d queries in fp32 alone",
        *(len(documents), len(queries), documents.device, len(unproven)),
    )
    if len(unproven):
        scores[unproven], rows[unproven] = fp32(asked[unproven], k)
    return scores, rows


def _search_by_faiss(documents: np.ndarray, world: World, queries: torch.Tensor, k: int) -> ScoresAndRows:
    k, asked = min(k, len(documents)), queries.cpu().float().contiguous()
    query_blocks = asked.split(QUERIES_PER_BLOCK)
    best = [(torch.empty(len(one), 0), torch.empty(len(one), 0, dtype=torch.int32)) for one in query_blocks]
    for first in _firsts(len(documents), FAISS_DOCUMENTS_PER_BLOCK, world):
        part = documents[first : first + FAISS_DOCUMENTS_PER_BLOCK]
        for place, block in enumerate(query_blocks):
            scores, rows = map(torch.from_numpy, _search_past_ties(part, block.numpy(), k))
            best[place] = best_of([best[place][0], scores], [best[place][1], rows + first], k)
    every_score, every_row = zip(*best, strict=True)
    return torch.cat(every_score), torch.cat(every_row)


def _search_past_ties(documents: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Search with growing k until no tie crosses the k-th place: faiss returns any of the tied documents."""
    faiss, k = import_faiss(), min(k, len(documents))
    scores, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int32)
    open_queries, top_k = np.arange(len(queries)), k + 1
    while len(open_queries):
        top_k = min(top_k, len(documents))
        metric = faiss.METRIC_INNER_PRODUCT
        hit_scores, hit_rows = faiss.knn(queries[open_queries], documents, top_k, metric=metric)
        if (hit_rows < 0).any():  # documents without a score are missing from the hits
            raise ValueError("vectors are not finite numbers, so that documents have no scores")
        order = np.lexsort((hit_rows, -hit_scores), axis=-1)[:, :k]
        scores[open_queries] = np.take_along_axis(hit_scores, order, 1)
        rows[open_queries] = np.take_along_axis(hit_rows, order, 1)
        open_queries = open_queries[(hit_scores[:, -1] == hit_scores[:, k - 1]) & (top_k < len(documents))]
        top_k *= 2
    return scores, rows
