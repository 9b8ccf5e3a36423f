"""What each kept checkpoint retrieves for training queries: LTRe's curves for every method.

Source: Zhan et al. 2020 (LTRe), arXiv:2010.10469, section 6.1, Figure 3.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.papers.studies.figures import Panel, lines, lines_of
from benchmarks.papers.studies.studied_run import Findings, NotKept, Row, StudiedRun, shared_share
from pyserini_ance.data.rankings import read_ranking
from pyserini_ance.recipe.models import START_PREFIX
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.trainer.frozen_documents import search_measures

TITLE = "Retrieval for training queries"
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
    checkpoints = list(_checkpoints(run))
    if len(checkpoints) < 2:
        raise NotKept(
            f"{run.run.folder} has kept one checkpoint; train with save_total_limit=100, and "
            "save_every_steps in its stages"
        )
    data, anchors = run.data, run.sampled_anchors("study training-retrieval")
    documents, known = data.collection.documents, data.anchor_sets["query"].known_positives
    k = min(run.settings.top_k, len(documents))
    path = data.run_files.get("bm25")
    bm25 = None if path is None else read_ranking(path, data.split, data.collection, k, anchors).rows
    before: np.ndarray | None = None
    for name, position in checkpoints:
        snapshot = run.snapshot(name)
        queries = snapshot.encode_queries(data.train_split, anchors)
        own = data.collection.own_documents(data.split, anchors)
        found = snapshot.rank(queries, snapshot.document_vectors, k, snapshot.passages, own=own)[1]
        measured = {key: float(of.mean()) for key, of in search_measures(known, anchors, found, bm25).items()}
        kept = None if before is None else float(shared_share(found, before).mean())
        about = dict(zip(ABOUT, (run.name, name, position, len(anchors)), strict=True))
        yield {**about, **measured, f"overlap@{k} with the checkpoint before": kept}
        before = found


def _checkpoints(run: StudiedRun) -> Iterator[tuple[str, int]]:
    """The kept checkpoints in the order of training, each with its position; equal ones in a row once."""
    before = ""
    firsts = {"initial": 0, **{name: first for name, (first, _) in run.history.stages.items()}}
    positions = {}
    for name in run.kept_checkpoints:  # initial weights are at the first step of their stage
        stage, _, step = name.rpartition("-")
        positions[name] = firsts.get(stage.removeprefix(START_PREFIX), run.history.steps) + int(step)
    for name, position in sorted(positions.items(), key=lambda item: item[1]):
        weights = Checkpoint.open(run.run.checkpoints / name, verify=False).weights
        if weights != before:
            yield name, position
        before = weights
