"""What each kept checkpoint retrieves for training queries: LTRe's curves for every method.

Source: Zhan et al. 2020 (LTRe), arXiv:2010.10469, section 6.1, Figure 3.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.papers.studies.figures import Panel, lines, lines_of
from benchmarks.papers.studies.studied_run import Findings, NotKept, Row, StudiedRun, shared_share
from pyserini_ance.data.rankings import read_ranking
from pyserini_ance.trainer.frozen_documents import search_measures

ABOUT = ("run", "checkpoint", "step", "queries")


def study(runs: Sequence[StudiedRun]) -> Findings:
    """RR@10 and R@k of the first k = `top_k` documents, positives included, and the shares of them that BM25
    has and that the checkpoint before had.

    Differs from the paper, where each step searches for its own batch, with dropout: here all checkpoints
    search for the same sample of training queries, each with its own document vectors.
    """
    rows = [row for run in runs for row in _rows(run)]
    measures = list(dict.fromkeys(key for row in rows for key in row if key not in ABOUT))
    x_label, y_label = "step of all stages", "mean over the queries"
    panels = [
        Panel(measure, x_label, y_label, lines(lines_of(rows, "run", "step", measure)))
        for measure in measures
    ]
    return Findings(rows, panels)


def _rows(run: StudiedRun) -> Iterator[Row]:
    if len(run.checkpoints) < 2:
        raise NotKept(
            f"{run.run.folder} has kept one checkpoint; train with save_total_limit=100, and "
            "save_every_steps in its stages"
        )
    collection, anchors = run.data.collection, run.sampled_anchors("study training-retrieval")
    training, known = run.training_queries, run.training_queries.known_positives
    k = min(run.settings.top_k, len(collection.documents))
    path = training.bm25
    bm25 = None if path is None else read_ranking(path, training.split, collection, k, anchors).rows
    before: np.ndarray | None = None
    for kept in run.checkpoints:
        snapshot = run.snapshot(kept.name)
        queries = snapshot.encode_queries(training.name, anchors)
        own = collection.own_documents(training.split, anchors)
        found = snapshot.rank(queries, snapshot.document_vectors, k, snapshot.passages, own=own)[1]
        measured = {key: float(of.mean()) for key, of in search_measures(known, anchors, found, bm25).items()}
        stayed = None if before is None else float(shared_share(found, before).mean())
        about = dict(zip(ABOUT, (run.name, kept.name, kept.position, len(anchors)), strict=True))
        yield {**about, **measured, f"overlap@{k} with the checkpoint before": stayed}
        before = found
