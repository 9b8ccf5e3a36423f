from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from pyserini_ance.data.passages import Passages
from pyserini_ance.negatives.lookahead import Lookahead
from pyserini_ance.negatives.table import PADDING


@pytest.mark.parametrize("anchor", ["query", "document"])
@pytest.mark.parametrize("top_k", [1, 6, 100])
@pytest.mark.parametrize("most_passages", [1, 3])
def test_table_agrees_with_brute_force(anchor, top_k, most_passages, split_of, snapshot_of):
    """Against a loop over all pairs of texts: a document is as near as its nearest passage."""
    rng = np.random.default_rng(3)
    positives = [rng.choice(25, count, replace=False).tolist() for count in (1, 3, 12, 1, 2)]
    queries, passages = rng.normal(size=(5, 3)), Passages.of_counts(rng.integers(1, most_passages + 1, 25))
    pieces = rng.normal(size=(int(passages.offsets[-1]), 3)).astype(np.float32)
    snapshot = snapshot_of(split_of(*positives), queries, pieces[:25])
    if most_passages > 1:
        snapshot.data, snapshot.document_vectors = replace(snapshot.data, passages=passages), pieces
    anchor_set = snapshot.anchor_set(anchor)
    table = Lookahead(top_k=top_k).mine(snapshot, anchor_set)
    assert table.anchors.tolist() == anchor_set.anchors.tolist()
    of = [pieces[a:b] for a, b in pairwise(passages.offsets)]
    scores = queries @ queries.T
    if anchor == "query":
        scores = np.array([[max(p @ q for p in one for q in other) for other in of] for one in of])
    for place, row in enumerate(table.anchors.tolist()):
        known = anchor_set.known_positives.of(row).tolist()
        ranked = [other for other in np.argsort(-scores[known[0]]).tolist() if other not in known][:top_k]
        padding = [PADDING] * (table.candidates.shape[1] - len(ranked))
        assert table.candidates[place].tolist() == ranked + padding
        np.testing.assert_allclose(table.scores[place][: len(ranked)], scores[known[0]][ranked], atol=1e-5)


@pytest.mark.parametrize("anchor", ["query", "document"])
@pytest.mark.parametrize("kind", ["absolute_margin", "relative_margin"])
def test_margins_compare_the_scores_of_the_anchor(anchor, kind, split_of, snapshot_of):
    """Against a slow loop: of the neighbours of the first positive, those that the anchor itself scores below
    its best positive less a margin."""
    rng = np.random.default_rng(2)
    positives = [rng.choice(30, count, replace=False).tolist() for count in (1, 3, 2, 1, 2)]
    vectors = {"query": rng.normal(size=(5, 4)), "document": rng.normal(size=(30, 4))}
    snapshot, margin = snapshot_of(split_of(*positives), *vectors.values()), 0.3
    anchor_set = snapshot.anchor_set(anchor)
    source = Lookahead(top_k=4, filters=[{"kind": kind, "margin": margin}, {"kind": "range_min", "ranks": 2}])
    table = source.mine(snapshot, anchor_set)
    others, own = vectors[table.candidate_side], vectors[anchor]
    for position, row in enumerate(table.anchors.tolist()):
        known = anchor_set.known_positives.of(row).tolist()
        best = max(own[row] @ others[other] for other in known)
        limit = best - margin * (abs(best) if kind == "relative_margin" else 1)
        near = np.argsort(-(others @ others[known[0]]))[2:].tolist()
        expected = [other for other in near if other not in known and own[row] @ others[other] <= limit]
        found = table.candidates[position]
        assert found[found != PADDING].tolist() == expected[:4]
    assert table.dropped[kind] > 0
