"""Exact inner-product search: blocks of queries against blocks of documents, on torch or faiss, with equal results.

Results are ordered by falling score, then by rising row: equal vectors come in a defined order on every backend.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import torch
from tqdm import tqdm

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors.best import Best
from pyserini_ance.vectors.faiss_library import import_faiss

QUERIES_PER_BLOCK = 512
DOCUMENTS_PER_BLOCK = 65_536  # unless a recipe says otherwise
SCORES_IN_CACHE = 1 << 22
SHOWN_AFTER_SECONDS = 1  # a bar for each step's search would only flicker

Backend = Literal["torch", "faiss"]
Searcher = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]  # (queries (Q, D), k) -> scores and rows (Q, k)


def exact_search(
    queries: np.ndarray, documents: np.ndarray, k: int, backend: Backend = "torch", device: str = "cpu"
) -> tuple[np.ndarray, np.ndarray]:
    """The k documents of largest inner product: scores (Q, k) float32 and rows (Q, k) int32, best first.

    queries (Q, D) and documents (N, D) are float32; documents may be a memory map. k is cut to N.
    """
    return searcher(documents, backend, device, World())(queries, k)


def standing(documents: np.ndarray, device: str) -> torch.Tensor:
    """`documents` (N, D) to be searched again and again: copied to a GPU once; on the CPU the array itself, mapped or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a read-only map, into which nobody writes
        return torch.from_numpy(documents).to(device)


def searcher(
    documents: np.ndarray | torch.Tensor, backend: Backend, device: str, world: World, documents_per_block: int = DOCUMENTS_PER_BLOCK
) -> Searcher:
    """`exact_search` over `documents`: faiss copies them into an index now; torch reads an array anew at each search, so many
    documents at a time, and takes a tensor (`standing`) as it lies.

    Searching raises PeerError when another process of `world` has ended.
    """
    if backend == "faiss" and len(documents):
        return partial(_search_index, _build_index(documents), world)
    return partial(_search_blocks, documents, device, world, documents_per_block)


def _search_blocks(
    documents: np.ndarray | torch.Tensor, device: str, world: World, documents_per_block: int, queries: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    k = min(k, len(documents))
    asked = [torch.from_numpy(np.ascontiguousarray(part.T)) for part in _in_blocks(queries, QUERIES_PER_BLOCK)]
    best = [Best(part.shape[1], k, device) for part in asked]
    size = _documents_at_once(documents, len(queries), documents_per_block)
    firsts = range(0, len(documents), size)
    shown = {"desc": "search", "unit": "block", "leave": False, "delay": SHOWN_AFTER_SECONDS, "disable": not world.is_main}
    with tqdm(total=len(asked) * len(firsts), **shown) as bar:
        for first in firsts:  # documents are many: each block is read, and moved to the device, once
            part = documents[first : first + size]
            part = part if isinstance(part, torch.Tensor) else torch.from_numpy(np.array(part)).to(device)
            for some, of_some in zip(asked, best, strict=True):
                world.check()
                _offer(of_some, part, some.to(device), first)
                bar.update()
    return _together(best, k)


def _documents_at_once(documents: np.ndarray | torch.Tensor, queries: int, documents_per_block: int) -> int:
    """On a GPU that holds them all, more for few queries: it waits at the end of each block, and scores take the same room."""
    if isinstance(documents, torch.Tensor) and documents.device.type != "cpu" and 0 < queries < QUERIES_PER_BLOCK:
        return documents_per_block * QUERIES_PER_BLOCK // queries
    return documents_per_block


def _offer(best: Best, documents: torch.Tensor, queries: torch.Tensor, first: int) -> None:
    """`documents` (N, D), the first of them row `first`, to `queries` (D, Q); on the CPU in parts whose scores its cache holds."""
    size = max(1, SCORES_IN_CACHE // queries.shape[1]) if documents.device.type == "cpu" else len(documents)
    for start in range(0, len(documents), size):
        best.offer(documents[start : start + size] @ queries, first + start)


def _in_blocks(queries: np.ndarray, size: int) -> list[np.ndarray]:
    return [queries[start : start + size] for start in range(0, len(queries), size)]


def _together(best: list[Best], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Of all queries: scores (Q, k) float32 and rows (Q, k) int32."""
    found = [(np.empty((0, k), np.float32), np.empty((0, k), np.int32)), *([x.cpu().numpy() for x in part.take()] for part in best)]
    scores, rows = map(np.concatenate, zip(*found, strict=True))
    return scores, rows


def _build_index(documents: np.ndarray):
    faiss = import_faiss()

    index = faiss.IndexFlatIP(documents.shape[1])
    for first in range(0, len(documents), DOCUMENTS_PER_BLOCK):
        index.add(np.ascontiguousarray(documents[first : first + DOCUMENTS_PER_BLOCK], np.float32))
    return index


def _search_index(index, world: World, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    k = min(k, index.ntotal)
    scores, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int32)
    shown = {"desc": "search", "unit": "block", "leave": False, "delay": SHOWN_AFTER_SECONDS, "disable": not world.is_main}
    for start in tqdm(range(0, len(queries), QUERIES_PER_BLOCK), **shown):
        world.check()
        block = slice(start, start + QUERIES_PER_BLOCK)
        scores[block], rows[block] = _search_past_ties(index, np.ascontiguousarray(queries[block], np.float32), k)
    return scores, rows


def _search_past_ties(index, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """faiss keeps any of those that tie at the border: search deeper until the border lies between two scores."""
    scores, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    open_queries, depth = np.arange(len(queries)), k + 1
    while len(open_queries):
        depth = min(depth, index.ntotal)
        found, found_rows = index.search(queries[open_queries], depth)
        order = np.lexsort((found_rows, -found), axis=-1)[:, :k]
        scores[open_queries] = np.take_along_axis(found, order, 1)
        rows[open_queries] = np.take_along_axis(found_rows, order, 1)
        open_queries = open_queries[(found[:, -1] == found[:, k - 1]) & (depth < index.ntotal)]
        depth *= 2
    return scores, rows
