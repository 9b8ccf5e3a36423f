"""Neighbours of a query's positive as forerunners of its next negatives (lookahead).

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, section 6.4, Figure 9(c).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.papers.studies.figures import Panel, bars
from benchmarks.papers.studies.studied_run import (
    Findings,
    Mined,
    NotKept,
    Row,
    StudiedRun,
    first_negatives,
    shared_share,
)
from pyserini_ance.negatives.table import PADDING, is_in_line

KINDS = {"new": "new negatives", "all": "all negatives", "by chance": "by chance"}


def study(runs: Sequence[StudiedRun]) -> Findings:
    """For each generation whose checkpoint is kept, the share of the next generation's negatives that are
    among the `top_k` neighbours of the query's first positive by that checkpoint: of its new ones (that no
    generation had before), of all, and by chance.

    The paper has 20 to 30 % of the new ones.
    """
    rows = [row for run in runs for row in _rows(run)]
    if not rows:
        raise NotKept(
            "none of these runs has kept a checkpoint that negatives were mined with and whose next "
            "negatives are kept; train with save_total_limit=100"
        )
    groups = {}
    for row in rows:
        label = f"{row['next']}, {row['run']}" if len(runs) > 1 else row["next"]
        groups[label] = {name: 100 * row[key] for key, name in KINDS.items() if row[key] is not None}
    title = "Covered by neighbours that the checkpoint before has found"
    panel = Panel(title, "generation of negatives", "share (%)", bars(groups))
    return Findings(rows, [panel])


def _rows(run: StudiedRun) -> Iterator[Row]:
    checkpoints, anchors = run.checkpoints_by_weights, run.sampled_anchors("study positive-neighbors")
    before = np.empty((len(anchors), 0), np.int32)  # the negatives of all generations so far
    last: Mined | None = None
    for mined in run.mined_for(anchors):
        negatives = mined.negatives
        if last is not None and last.weights in checkpoints and negatives.shape[1]:
            neighbours = _neighbours(run, checkpoints[last.weights], anchors)
            new = np.where(is_in_line(negatives, before), np.int32(PADDING), negatives)
            found = (neighbours != PADDING).sum(1).mean()
            yield {
                "run": run.name,
                "generation": last.name,
                "next": mined.name,
                "new": _mean(shared_share(new, neighbours)),
                "all": _mean(shared_share(negatives, neighbours)),
                "by chance": float(found / len(run.data.collection.documents)),
                "queries": len(anchors),
            }
        before = np.concatenate([before, negatives], axis=1)
        last = mined


def _neighbours(run: StudiedRun, checkpoint: str, anchors: np.ndarray) -> np.ndarray:
    """(A, top_k) the documents nearest to each query's first positive, without its known positives."""
    snapshot, k = run.snapshot(checkpoint), run.settings.top_k
    anchor_set = run.data.anchor_sets["query"]
    known = anchor_set.known_positives
    positives, of_anchor = np.unique(known.rows[known.offsets[anchors]], return_inverse=True)
    depth, vectors = k + anchor_set.most_excluded[1], snapshot.document_vectors
    hits = snapshot.rank_for_documents(positives, vectors, depth, snapshot.passages)[1]
    return first_negatives(anchor_set, anchors, hits[of_anchor], k)


def _mean(shares: np.ndarray) -> float | None:
    return None if np.isnan(shares).all() else float(np.nanmean(shares))
