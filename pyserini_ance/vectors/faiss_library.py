"""Faiss, imported by whoever first needs it, and set so that many vectors are compared by matrix products."""

from types import ModuleType

# What 1.15.1 starts with: below so many numbers (queries times dimension) it compares vector by vector. That was measured with many
# threads. With one, products win from some 800 on (facebookresearch/faiss, pull request 5109): k-means is 18 times as fast.
OF_RELEASE = 128_000
NUMBERS_A_THREAD = 800


def import_faiss() -> ModuleType:
    """Raises ImportError where it is not installed."""
    import faiss

    if faiss.cvar.distance_compute_blas_threshold == OF_RELEASE:
        faiss.cvar.distance_compute_blas_threshold = NUMBERS_A_THREAD * faiss.omp_get_max_threads()
    return faiss
