from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from helpers.filter_fixture import table_of

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
    table = table_of(Lookahead(top_k=top_k), snapshot, anchor_set)
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
