"""Candidates as a source would find them, of texts, scores and positives that are given."""

import json
from collections.abc import Sequence

import numpy as np

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.tokenization import Tokenization
from pyserini_ance.negatives.filters.base import Candidates, Filter, apply_masks, filter_masks
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext
from pyserini_ance.recipe.models import Encoding


class Given(Snapshot):
    tokenization = Tokenization()


def candidates_of(
    positives, rows, scores=None, documents=(), queries=(), answers=(), positive_scores=None, anchor="query"
) -> Candidates:
    """Query q0, q1, ... has the document rows of `positives`; scores fall from 0 unless given."""
    pairs = [(query, document) for query, known in enumerate(positives) for document in known]
    columns = {"text": list(queries) or [f"query {i}" for i in range(len(positives))]}
    if answers:
        columns["answers"] = [json.dumps(one) for one in answers]
    qrels = Qrels.of(*zip(*pairs, strict=True), [1] * len(pairs), len(positives))
    split = Split("train", Texts([f"q{i}" for i in range(len(positives))], columns), qrels)
    texts = list(documents) or [f"document {i}" for i in range(50)]
    columns = {"title": [""] * len(texts), "text": texts}
    collection = Collection(Texts([f"d{i}" for i in range(len(texts))], columns), {"train": split})
    data = PreparedData(collection, None, {}, "train", "")
    snapshot = Given(None, "weights", data, Encoding(), None, "cpu", World())
    rows = np.asarray(rows, np.int32)
    scores = np.broadcast_to(-np.arange(rows.shape[1]), rows.shape) if scores is None else np.asarray(scores)
    given = None if positive_scores is None else lambda: np.asarray(positive_scores, np.float32)
    return Candidates(snapshot, snapshot.anchor_set(anchor), rows, scores.astype(np.float32), given)


def apply_filters(candidates: Candidates, filters: Sequence[Filter], width: int) -> tuple:
    """The first `width` candidates of each anchor that are not known positives and pass all filters."""
    return apply_masks(candidates.rows, candidates.scores, filter_masks(candidates, filters, width), width)


def table_of(source, snapshot, anchor_set=None):
    """What a source mines for all queries, or for an anchor set, without a stage before."""
    return source.mine(snapshot, anchor_set or snapshot.anchor_set("query"), MiningContext())
