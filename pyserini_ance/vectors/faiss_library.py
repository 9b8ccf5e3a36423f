"""The library faiss, imported where it is needed, with the settings that are fast."""

import importlib.util
from types import ModuleType
from typing import Any

import numpy as np
import torch

# The default of faiss 1.15.1: with fewer numbers (queries times dimension) it compares vector by vector. That
# default was measured with many threads. With one thread, matrix products are faster from some 800 numbers on
# (facebookresearch/faiss, pull request 5109): k-means is 18 times as fast.
DEFAULT_BLAS_THRESHOLD = 128_000
BLAS_THRESHOLD_PER_THREAD = 800

FaissIndex = Any  # faiss ships no types


def require_faiss() -> None:
    """Raise RuntimeError if faiss is not installed, without importing it."""
    if importlib.util.find_spec("faiss") is None:
        raise RuntimeError("faiss is not installed: pip install faiss-cpu (or faiss-gpu, never both)")


def import_faiss() -> ModuleType:
    """Import faiss, set to torch's number of threads and to compare many vectors by matrix products."""
    require_faiss()
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    if faiss.cvar.distance_compute_blas_threshold == DEFAULT_BLAS_THRESHOLD:
        faiss.cvar.distance_compute_blas_threshold = BLAS_THRESHOLD_PER_THREAD * faiss.omp_get_max_threads()
    return faiss


def pair_scores(
    queries: torch.Tensor, asked: torch.Tensor, documents: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    """(C,) float32 inner products of queries `asked` (C,) and documents `rows` (C,), both int64.

    queries (Q, D) and documents (N, D) are contiguous, float32 on the CPU. Equal documents score alike.
    """
    faiss = import_faiss()
    scores = np.empty(len(rows), np.float32)
    arrays = [each.numpy() for each in (queries, asked, documents, rows)]
    pointers = map(faiss.swig_ptr, (*arrays, scores))
    faiss.pairwise_indexed_inner_product(queries.shape[1], len(rows), *pointers)
    return torch.from_numpy(scores)
