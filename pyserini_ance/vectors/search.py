"""Exact inner-product search: blocks of queries against blocks of documents, on torch or faiss, with equal results.

Results are ordered by falling score, then by rising row: equal vectors come in a defined order on every backend.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from tqdm import tqdm

QUERIES_PER_BLOCK = 1024
DOCUMENTS_PER_BLOCK = 65_536


def exact_search(
    queries: np.ndarray, documents: np.ndarray, k: int, backend: Literal["torch", "faiss"] = "torch", device: str = "cpu"
) -> tuple[np.ndarray, np.ndarray]:
    """The k documents of largest inner product: scores (Q, k) float32 and rows (Q, k) int32, best first.

    queries (Q, D) and documents (N, D) are float32; documents may be a memory map. k is cut to N.
    """
    k = min(k, len(documents))
    scores, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int32)
    blocks = _faiss_blocks(queries, documents, k) if backend == "faiss" else _torch_blocks(queries, documents, k, device)
    with tqdm(total=len(queries), desc="search", unit="query", leave=False) as bar:
        for start, block_scores, block_rows in blocks:
            stop = start + len(block_rows)
            scores[start:stop], rows[start:stop] = block_scores, block_rows
            bar.update(len(block_rows))
    return scores, rows


def _torch_blocks(queries: np.ndarray, documents: np.ndarray, k: int, device: str) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    for start in range(0, len(queries), QUERIES_PER_BLOCK):
        block = torch.from_numpy(np.ascontiguousarray(queries[start : start + QUERIES_PER_BLOCK])).to(device)
        best_scores = torch.empty(len(block), 0, device=device)
        best_rows = torch.empty(len(block), 0, dtype=torch.int64, device=device)
        for first in range(0, len(documents), DOCUMENTS_PER_BLOCK):
            part = torch.from_numpy(np.array(documents[first : first + DOCUMENTS_PER_BLOCK])).to(device)
            scores, rows = _top_of_block(block @ part.T, k)
            best_scores, best_rows = torch.cat([best_scores, scores], 1), torch.cat([best_rows, rows + first], 1)
            best_scores, kept = _lowest_rows_first(best_scores, k)
            best_rows = best_rows.gather(1, kept)
        yield start, best_scores.cpu().numpy(), best_rows.cpu().numpy()


def _top_of_block(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k best of scores (Q, N) by rising row; of those that tie at the border, the lower rows.

    `topk` takes any of the tied; where more than k reach the k-th score, the row is sorted stably instead.
    """
    k = min(k, scores.shape[1])
    best, rows = scores.topk(k, dim=1)
    tied = (scores >= best[:, -1:]).sum(1) > k
    if tied.any():
        best[tied], rows[tied] = (x[:, :k] for x in scores[tied].sort(dim=1, descending=True, stable=True))
    rows, order = rows.sort(dim=1)
    return best.gather(1, order), rows


def _lowest_rows_first(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Stable: what came from an earlier block, hence a lower row, stays ahead of its equals."""
    ordered, kept = scores.sort(dim=1, descending=True, stable=True)
    return ordered[:, :k], kept[:, :k]


def _faiss_blocks(queries: np.ndarray, documents: np.ndarray, k: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    import faiss

    index = faiss.IndexFlatIP(documents.shape[1])
    for first in range(0, len(documents), DOCUMENTS_PER_BLOCK):
        index.add(np.ascontiguousarray(documents[first : first + DOCUMENTS_PER_BLOCK], np.float32))
    for start in range(0, len(queries), QUERIES_PER_BLOCK):
        yield start, *_search_past_ties(index, np.ascontiguousarray(queries[start : start + QUERIES_PER_BLOCK], np.float32), k)


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
