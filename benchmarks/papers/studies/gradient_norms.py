"""Gradient norms of single negatives by their source, with the norm at the last layer that bounds them.

Source: Xiong et al. 2021 (ANCE), arXiv:2007.00808, section 3 (Eq. 11 and 12) and Figure 8; the bound is that
of Katharopoulos and Fleuret 2018, arXiv:1803.00942.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from statistics import fmean

import numpy as np
import pandas as pd
import torch

from benchmarks.papers.studies.figures import Panel, bars, heights, lines, lines_of, points, smooth
from benchmarks.papers.studies.studied_run import Findings, Row, StudiedRun
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING, fill_random
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.term import Term
from pyserini_ance.trainer.batch import Batch, TermRows
from pyserini_ance.trainer.losses.nll import Nll
from pyserini_ance.trainer.objective import term_losses
from pyserini_ance.trainer.step import BatchEncoder

TERM = "study"
NORMS = {"all weights": "gradient_norm", "last layer": "last_layer_norm"}


def study(runs: Sequence[StudiedRun]) -> Findings:
    """For sampled training queries, with one positive and one negative of each source: the loss, the norm of
    its gradient over all weights that train, and over the vectors of the three texts (the last layer).

    The model is the run's result, without dropout; the loss is that of its last stage, NLL if that needs a
    teacher. The gradient norm is at most a constant times the last layer's (Eq. 11); `ratio` is the largest
    seen. Sources: the positive of another query (`in-batch`), the hardest of those in a batch of the recipe's
    size (`NCE`), a random document, and one of the first `top_k` of BM25 and of the model itself (`ANN`).
    """
    rows = [row for run in runs for row in _rows(run)]
    summary = _summary(rows)
    several = len(runs) > 1
    means = heights(summary, "source", "run", "gradient_norm")
    if not several:
        means = {row["source"]: {name: row[key] for name, key in NORMS.items()} for row in summary}
    pairs = lines_of(rows, "run" if several else "source", "last_layer_norm", "gradient_norm")
    steps = {run.name: run.history.lines["gradient norm"].get("grad_norm") for run in runs}
    trained = {name: smooth(series) for name, series in steps.items() if series is not None}
    title = f"Mean over training queries{', all weights' if several else ''}"
    panels = [
        Panel(title, "source of the negative", "L2 norm", bars(means, log_y=True)),
        Panel("Each query", "L2 norm at the last layer", "L2 norm over all weights", points(pairs, log=True)),
    ]
    if trained:
        title = "During training, before clipping (running mean)"
        drawn = lines(trained, points=False)
        panels.append(Panel(title, "step of all stages", "L2 norm of a step", drawn))
    return Findings(rows, panels, summary)


def _summary(rows: Sequence[Row]) -> list[Row]:
    """The means by run and source; `ratio` is the largest, None where all norms at the last layer are 0."""
    frame = pd.DataFrame(rows)
    frame["ratio"] = frame.gradient_norm / frame.last_layer_norm.replace(0, np.nan)
    by_source = frame.groupby(["run", "source"], sort=False)
    means = {key: (key, fmean) for key in ("loss", *NORMS.values())}
    found = by_source.agg(queries=("loss", "size"), **means, ratio=("ratio", "max")).reset_index()
    return found.astype(object).where(found.notna(), None).to_dict("records")


def _rows(run: StudiedRun) -> Iterator[Row]:
    anchors, known = run.sampled_anchors("study gradient-norms"), run.training_queries.known_positives
    positives = known.rows[known.offsets[anchors]]
    sources = _negatives(run, anchors, positives)
    ids = run.data.split.queries.ids
    measured = GradientNorms(run, run.result)
    for source, negatives in sources.items():
        for anchor, positive, negative in zip(anchors, positives, negatives, strict=True):
            if negative != PADDING:
                of_pair = measured(anchor, positive, negative)
                yield {"run": run.name, "source": source, "query": ids[anchor], **of_pair}


def _negatives(run: StudiedRun, anchors: np.ndarray, positives: np.ndarray) -> Mapping[str, np.ndarray]:
    """One negative (A,) of each source for the queries `anchors` (A,); PADDING where a source has none."""
    snapshot, queries = run.result, run.training_queries
    rng = random_stream("study gradient-norms: negatives", run.settings.seed)
    batch = run.recipe.stages[run.last_stage].batch_queries
    others = np.stack([rng.permutation(len(anchors))[:batch] for _ in anchors])
    in_batch = positives[others]  # (A, batch) positives of the queries of a random batch
    is_own = queries.anchor_set.never_negative(anchors, in_batch)
    scores = snapshot.score(
        snapshot.encode_queries(queries.name, anchors),
        np.repeat(np.arange(len(anchors)), in_batch.shape[1]),
        in_batch.ravel(),
    ).reshape(in_batch.shape)
    hardest = np.where(is_own, -np.inf, scores).argmax(1)[:, None]
    first = np.take_along_axis(in_batch, (~is_own).argmax(1)[:, None], 1)[:, 0]
    empty = np.full((len(anchors), 1), PADDING, np.int32)
    found = {
        "in-batch": np.where(is_own.all(1), PADDING, first),
        "NCE": np.where(is_own.all(1), PADDING, np.take_along_axis(in_batch, hardest, 1)[:, 0]),
        "random": fill_random(empty, anchors, queries.anchor_set, rng)[:, 0],
    }
    if (of_bm25 := run.bm25_negatives(queries, anchors)) is not None:
        found["BM25"] = _one_of(of_bm25, rng)
    return {**found, "ANN": _one_of(run.top_negatives(snapshot, queries, anchors), rng)}


def _one_of(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(A,) one of each line of `rows` (A, n) at random; PADDING comes last in a line."""
    counts = (rows != PADDING).sum(1)
    columns = rng.integers(0, np.maximum(counts, 1))
    return np.where(counts > 0, rows[np.arange(len(rows)), columns], PADDING)


class GradientNorms:
    """Called with a query, a positive and a negative (rows): the loss and the two norms of its gradient."""

    def __init__(self, run: StudiedRun, snapshot: Snapshot):
        stage = run.recipe.stages[run.last_stage]
        encoder = snapshot.encoder
        encoder.towers.eval()
        if stage.trainable == "query_tower":
            encoder.untie()
            encoder.towers.freeze("document")
        self.terms = {TERM: single_negative_term(list(stage.terms.values()))}
        self.anchor_sets, self.encoder = run.data.anchor_sets, encoder
        alone = stage.model_copy(update={"terms": self.terms, "chunk_queries": None})
        budget = run.recipe.encoding.tokens_per_batch
        key = (run.settings.seed, 0)
        self.batches = BatchEncoder(alone, run.data, encoder, nullcontext, budget, key, run.world)

    def __call__(self, query: int, positive: int, negative: int) -> dict[str, float]:
        rows = (np.array(row, np.int32) for row in ([query], [[positive]], [[negative]]))
        queries, positives, negatives = rows
        batch = Batch(queries, {TERM: TermRows("query", queries, positives, negatives)})
        [chunk] = self.batches.encode(batch, 0)
        loss = term_losses(self.terms, chunk.batch, self.anchor_sets, chunk.vectors, chunk.passages)[TERM]
        chunk.backward(loss)
        weights = list(self.encoder.towers.parameters())
        norms = {
            "loss": float(loss.detach()),
            "gradient_norm": _norm([weight.grad for weight in weights]),
            "last_layer_norm": _norm([vectors.grad for vectors in chunk.vectors.values()]),
        }
        for weight in weights:
            weight.grad = None
        return norms


def single_negative_term(terms: Sequence[Term]) -> Term:
    """The first term with queries as anchors and a loss of its own, over one negative; NLL if that loss
    follows a teacher, or if there is none."""
    of_queries = [term for term in terms if term.anchor == "query" and term.regularizer is None]
    plain = next((term for term in of_queries if not getattr(term.loss, "needs_teacher", False)), None)
    scale = getattr(of_queries[0].loss, "scale", None) if of_queries else None
    loss = plain.loss if plain else Nll(scale=scale)
    unset = "negatives_from num_hardest false_negative_margin teacher regularizer dimensions"
    empty = dict.fromkeys(unset.split(), None)
    changes = {"anchor": "query", "negatives": (), "in_batch_negatives": False, "loss": loss, "weight": 1.0}
    return terms[0].model_copy(update={**changes, **empty})


def _norm(gradients: Sequence[torch.Tensor | None]) -> float:
    """The L2 norm of all gradients together; None is 0. It is summed in float64, without copies."""
    norms = [torch.linalg.vector_norm(one, dtype=torch.float64) for one in gradients if one is not None]
    return math.hypot(*map(float, norms))
