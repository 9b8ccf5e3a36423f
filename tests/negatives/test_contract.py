"""What every kind of negatives that ships must keep to: no known positive, ever."""

import numpy as np
import pytest

from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.episode import Episode
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.parts import kinds, part_class

DOCUMENTS, QUERIES = 40, 6
POSITIVES = [[0], [1, 2], list(range(20, 37)), [3], [39], [0, 39, 7]]
DRAWN = [kind for kind in kinds("negatives") if not part_class("negatives", kind).live]  # the others find positives too


@pytest.fixture
def snapshot(split_of, snapshot_of, tmp_path):
    """Each query's positives come first in its ranking, by vectors and in the BM25 file alike."""
    vectors = np.eye(QUERIES, dtype=np.float32)
    documents = np.random.default_rng(0).random((DOCUMENTS, QUERIES), np.float32)
    for query, rows in enumerate(POSITIVES):
        documents[rows, query] += 2
    ranked = [(q, int(d), documents[d, q]) for q in range(QUERIES) for d in np.argsort(-documents[:, q])]
    (tmp_path / "bm25").write_text("".join(f"q{q} Q0 d{d} 1 {score:.4f} t\n" for q, d, score in ranked))
    return snapshot_of(split_of(*POSITIVES), vectors, documents, bm25=tmp_path / "bm25")


def source_of(kind: str, depth: int):
    cls = part_class("negatives", kind)
    settings = {"kind": kind, "per_query": 4}
    if kind == "mix":
        sources = [{"kind": "ann", "depth": depth}, {"kind": "momentum"}, {"kind": "lookahead", "depth": depth}]
        return cls.model_validate({**settings, "sources": sources, "duplicates": "drop"})
    return cls.model_validate({**settings, "depth": depth} if "depth" in cls.model_fields else settings)


def mined(source, snapshot, anchor: str):
    """Its table, where it has one, for a stage before which another ended with ANN negatives."""
    former = Ann(depth=5).mine(snapshot, anchor).of_generation("a-00000000")
    return source.mine(snapshot, anchor, Episode("b-00000000", (former,))) if source.has_table else None


@pytest.mark.parametrize("depth", [5, 100])
@pytest.mark.parametrize("kind", DRAWN)
def test_no_table_and_no_draw_holds_a_known_positive(kind, depth, snapshot):
    source = source_of(kind, depth)
    table = mined(source, snapshot, "query")
    if table:
        assert table.anchors.tolist() == list(range(QUERIES))
        assert source.check(table, snapshot.collection, snapshot.split) == 0
        if kind in ("ann", "run"):  # their rankings begin with the positives
            assert table.dropped["known positives"] == sum(map(len, POSITIVES))
        for row, known in zip(table.candidates, POSITIVES, strict=True):
            found = row[row != PADDING].tolist()
            assert not set(found) & set(known)
            assert len(found) == len(set(found))
            assert len(found) >= (5 if kind == "momentum" else min(depth, DOCUMENTS - len(known)))
    rows = np.tile(np.arange(QUERIES), 300)
    drawn = source.draw(rows, table, snapshot.direction("query"), np.random.default_rng(0))
    assert drawn.shape == (len(rows), 4) and drawn.dtype == np.int32
    assert (drawn >= 0).all() and (drawn < DOCUMENTS).all()
    for row, line in zip(rows, drawn.tolist(), strict=True):
        assert not set(line) & set(POSITIVES[row]) and len(set(line)) == 4


@pytest.mark.parametrize("kind", [kind for kind in DRAWN if kind != "run"])
def test_documents_as_anchors_meet_no_query_that_they_answer(kind, snapshot):
    source, direction = source_of(kind, 3), snapshot.direction("document")
    relevant = {document: {q for q, rows in enumerate(POSITIVES) if document in rows} for document in direction.anchors.tolist()}
    assert set(relevant) == set().union(*POSITIVES)
    table = mined(source, snapshot, "document")
    if table:
        assert table.anchors.tolist() == sorted(relevant) and (table.anchor_side, table.candidate_side) == ("document", "query")
        assert not any(relevant[anchor] & set(row.tolist()) for anchor, row in zip(table.anchors.tolist(), table.candidates, strict=True))
    rows = np.tile(direction.anchors, 20)
    drawn = source.model_copy(update={"per_query": 3}).draw(rows, table, direction, np.random.default_rng(0))
    assert (drawn >= 0).all() and (drawn < QUERIES).all()
    for row, line in zip(rows.tolist(), drawn.tolist(), strict=True):
        assert not set(line) & relevant[row] and len(set(line)) == 3
