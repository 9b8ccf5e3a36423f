"""Faiss, imported by whoever first needs it, and set so that many vectors are compared by matrix products."""

from types import ModuleType

# What releases from 1.14 on start with: below so many numbers (queries times dimension) they compare vector by vector. That was measured
# with 80 threads. With one, products win from some 800 on (facebookresearch/faiss, pull request 5109): k-means is 18 times as fast.
OF_RELEASES = 128_000
NUMBERS_A_THREAD = 800


def import_faiss() -> ModuleType:
    """Raises ImportError where it is not installed."""
    import faiss

    if faiss.cvar.distance_compute_blas_threshold == OF_RELEASES:
        faiss.cvar.distance_compute_blas_threshold = NUMBERS_A_THREAD * faiss.omp_get_max_threads()
    return faiss
