"""Time an OPQ96,IVF1,PQ96 search over 100,000 codes and over a million, in turns.

Turns spread a slow period of the machine over both. `python tests/vectors/scan.py` prints the medians of the
rounds and of their ratios. Codes are random: their values do not change the work.
"""

import time
from statistics import median

import faiss
import numpy as np

from pyserini_ance.vectors.faiss_index import new_index

SIZES = (100_000, 1_000_000)
QUERIES, HITS, ROUNDS = 50, 200, 9


def filled_index(codes: np.ndarray):
    """An index of these codes (N, 96)."""
    index = new_index(96, "OPQ96,IVF1,PQ96")
    index.train(np.random.default_rng(0).standard_normal((256, 96), np.float32))
    lists = faiss.extract_index_ivf(index)
    lists.invlists.add_entries(0, len(codes), faiss.swig_ptr(np.arange(len(codes))), faiss.swig_ptr(codes))
    index.ntotal = lists.ntotal = len(codes)
    return index


def seconds(index, queries: np.ndarray) -> float:
    """Processor seconds for one query."""
    start = time.process_time()
    index.search(queries, HITS)
    return (time.process_time() - start) / len(queries)


def main() -> None:
    faiss.omp_set_num_threads(1)
    random = np.random.default_rng(1)
    queries = random.standard_normal((QUERIES, 96), np.float32)
    indexes = [filled_index(random.integers(0, 256, (size, 96), np.uint8)) for size in SIZES]
    rounds = [[seconds(index, queries) for index in indexes] for _ in range(ROUNDS)]
    for size, of_size in zip(SIZES, zip(*rounds, strict=True), strict=True):
        print(f"{size:,} codes: {1000 * median(of_size):.1f} ms a query")
    ratios = [large / small for small, large in rounds]
    print(
        f"{max(SIZES) / min(SIZES):.0f} times as many: {median(ratios):.1f} times as long, "
        f"{min(ratios):.1f} to {max(ratios):.1f}"
    )


if __name__ == "__main__":
    main()
