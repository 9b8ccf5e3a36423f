"""Overlap: how much of the top of a ranking another ranking has in its top as well.

Source: Xiong et al. 2021 (ANCE), arXiv:2007.00808, appendix A.2: with BM25, of the first 100.
"""

from collections.abc import Iterable

from pyserini_ance.data.trec import Run
from pyserini_ance.measures.evaluate import best_first

CUTOFF = 100


def overlap(run: Run, other: Run, queries: Iterable[str], cutoff: int = CUTOFF) -> dict[str, dict[str, float]]:
    """By those of `queries` that have hits in `run`, `Overlap@k`: the share of its first k that are among the first k of `other`.

    Of the hits there are, where they are fewer than k. Raises ValueError when `other` has hits for none of them.
    """
    asked = [query for query in queries if run.get(query)]
    if asked and not any(other.get(query) for query in asked):
        raise ValueError(f"the run to overlap with has none of these queries ({asked[0]!r}, ...); name one over the same queries")
    return {query: {f"Overlap@{cutoff}": _share(run[query], other.get(query, {}), cutoff)} for query in asked}


def _share(scores: dict[str, float], others: dict[str, float], cutoff: int) -> float:
    top = best_first(scores)[:cutoff]
    return len(set(top).intersection(best_first(others)[:cutoff])) / len(top)
