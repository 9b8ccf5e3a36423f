"""Hole rate: the share of the top of a ranking that nobody has judged, which other measures take for irrelevant.

Source: Xiong et al. 2021 (ANCE), arXiv:2007.00808, appendix A.2.
"""

from collections.abc import Sequence

from pyserini_ance.data.trec import Qrels, Run
from pyserini_ance.measures.evaluate import per_query
from pyserini_ance.recipe.measure import parse


def holes(qrels: Qrels, run: Run, cutoffs: Sequence[int]) -> dict[str, dict[str, float]]:
    """By judged query that has hits, `Hole@k` of each cutoff: 1 - Judged@k, of the hits there are where they are fewer than k."""
    with_hits = {query: judged for query, judged in qrels.items() if run.get(query)}
    measures = {f"Hole@{cutoff}": f"Judged@{cutoff}" for cutoff in cutoffs}
    judged = per_query(with_hits or qrels, run, parse(measures.values()))
    return {query: {name: 1 - judged[query][measure] for name, measure in measures.items()} for query in with_hits}
