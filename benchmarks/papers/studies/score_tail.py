"""The long tail of scores: the first documents of a query above the mean score of all documents.

Source: Xiong et al. 2021 (ANCE), arXiv:2007.00808, Figure 7.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.papers.studies.figures import Panel, lines, lines_of
from benchmarks.papers.studies.studied_run import Findings, Row, StudiedRun
from pyserini_ance.data.passages import Passages
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.vectors.encoding import ShardedVectors

SHOWN_RANKS = (1, 10, 100, 1000)
DOCUMENTS_PER_BLOCK = 8192


def study(runs: Sequence[StudiedRun]) -> Findings:
    """Scores by rank for sampled test queries, minus the mean score of the query over the corpus: the mean
    over the queries, and the 10th and 90th percentile.

    The ranks are those up to ten times `top_k`. Document vectors are those of `RUN/index`.
    """
    rows = [row for run in runs for row in _rows(run)]
    panel = Panel(
        "Mean over test queries; band: 10th to 90th percentile",
        "rank",
        "score above the corpus mean",
        lines(lines_of(rows, "run", "rank", "mean", "p10", "p90"), points=False, log_x=True),
    )
    return Findings(rows, [panel], [row for row in rows if row["rank"] in SHOWN_RANKS])


def _rows(run: StudiedRun) -> Iterator[Row]:
    snapshot, split = run.result, run.recipe.final_evaluation.split[0]
    total, count = len(run.data.collection.split(split).queries), run.settings.queries
    asked = np.unique(np.linspace(0, total - 1, min(total, count)).astype(int))
    queries = snapshot.encode_queries(split, asked, precision="fp32")
    depth = 10 * run.settings.top_k
    own = run.data.collection.own_documents(run.data.collection.split(split), asked)
    scores, hits = snapshot.rank(queries, snapshot.document_vectors, depth, snapshot.passages, own=own)
    above = scores - mean_scores(queries, snapshot.document_vectors, snapshot.passages)[:, None]
    above[hits == PADDING] = np.nan
    for rank, of_rank in enumerate(above.T, start=1):
        p10, p90 = np.nanpercentile(of_rank, [10, 90])
        yield {
            "run": run.name,
            "rank": rank,
            "mean": float(np.nanmean(of_rank)),
            "p10": float(p10),
            "p90": float(p90),
            "queries": len(asked),
        }


def mean_scores(
    queries: np.ndarray, vectors: ShardedVectors | np.ndarray, passages: Passages | None
) -> np.ndarray:
    """(Q,) the mean score of all documents for each of `queries` (Q, D).

    A document of several passages, rows of `vectors`, scores as its best one.
    """
    bounds = np.arange(len(vectors) + 1) if passages is None else passages.offsets
    total = np.zeros(len(queries))
    for start in range(0, len(bounds) - 1, DOCUMENTS_PER_BLOCK):
        block = bounds[start : start + DOCUMENTS_PER_BLOCK + 1]
        scores = queries @ vectors[block[0] : block[-1]].T
        total += np.maximum.reduceat(scores, block[:-1] - block[0], axis=1).sum(1, dtype=np.float64)
    return total / (len(bounds) - 1)
