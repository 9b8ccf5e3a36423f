import numpy as np
import pytest
from helpers.filter_fixture import table_of

from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.source import MiningContext
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.components import component_class, kinds

DOCUMENTS, QUERIES = 40, 6
POSITIVES = [[0], [1, 2], list(range(20, 37)), [3], [39], [0, 39, 7]]
# Where query 3 has the text of query 4, and document 5 that of document 1.
WITH_COPIES = [[0], [1, 2, 5], POSITIVES[2], [3, 39], [3, 39], [0, 39, 7]]
# Live sources retrieve positives, too.
DRAWN = [kind for kind in kinds("negatives") if not component_class("negatives", kind).live]


@pytest.fixture(params=[POSITIVES, WITH_COPIES], ids=["judged", "copies"])
def excluded(request):
    """The documents that are never negatives of each query."""
    return request.param


@pytest.fixture
def snapshot(excluded, split_of, snapshot_of, tmp_path):
    """They are at the top of each ranking, both by vectors and in the BM25 file."""
    queries, texts = ([f"text {row}" for row in range(count)] for count in (QUERIES, DOCUMENTS))
    if excluded is WITH_COPIES:
        queries[3] = queries[4] = texts[1] = texts[5] = "copy"
    vectors = np.eye(QUERIES, dtype=np.float32)
    documents = np.random.default_rng(0).random((DOCUMENTS, QUERIES), np.float32)
    for query, rows in enumerate(excluded):
        documents[rows, query] += 2
    ranked = [(q, int(d), documents[d, q]) for q in range(QUERIES) for d in np.argsort(-documents[:, q])]
    (tmp_path / "bm25").write_text("".join(f"q{q} Q0 d{d} 1 {score:.4f} t\n" for q, d, score in ranked))
    return snapshot_of(split_of(*POSITIVES, texts=queries), vectors, documents, texts, bm25=tmp_path / "bm25")


def source_of(kind: str, top_k: int, snapshot):
    cls = component_class("negatives", kind)
    settings = {"kind": kind, "num_negatives": 4}
    if kind == "ranking":
        settings["file"] = snapshot.data.training_rankings["bm25"]
    if kind == "mix":
        searched = [{"kind": kind, "top_k": top_k} for kind in ("ann", "lookahead")]
        sources = [searched[0], {"kind": "momentum"}, searched[1]]
        return cls.model_validate({**settings, "sources": sources, "duplicates": "drop"})
    return cls.model_validate({**settings, "top_k": top_k} if "top_k" in cls.model_fields else settings)


def mined(source, snapshot, anchor: str):
    """The source's table, if it has one; the previous stage had ANN negatives."""
    anchor_set = snapshot.anchor_set(anchor)
    previous_stage = table_of(Ann(top_k=5), snapshot, anchor_set).of_generation("a-00000000")
    context = MiningContext("b-00000000", (previous_stage,))
    return source.mine(snapshot, anchor_set, context) if source.is_mined else None


@pytest.mark.parametrize("top_k", [5, 100])
@pytest.mark.parametrize("kind", DRAWN)
def test_tables_and_draws_hold_no_known_positives(kind, top_k, snapshot, excluded):
    source = source_of(kind, top_k, snapshot)
    table = mined(source, snapshot, "query")
    if table:
        assert table.anchors.tolist() == list(range(QUERIES))
        assert source.num_short(table) == 0
        if kind in ("ann", "bm25", "ranking"):  # their rankings begin with the positives
            assert table.dropped["known positives"] == sum(map(len, POSITIVES))
            copies = sum(map(len, excluded)) - sum(map(len, POSITIVES))
            assert table.dropped.get("copies of positives", 0) == copies
        for row, known in zip(table.candidates, excluded, strict=True):
            found = row[row != PADDING].tolist()
            assert not set(found) & set(known)
            assert len(found) == len(set(found))
            assert len(found) >= (5 if kind == "momentum" else min(top_k, DOCUMENTS - len(known)))
    rows = np.tile(np.arange(QUERIES), 300)
    drawn = source.draw(rows, table, snapshot.anchor_set("query"), np.random.default_rng(0))
    assert drawn.shape == (len(rows), 4) and drawn.dtype == np.int32
    assert (drawn >= 0).all() and (drawn < DOCUMENTS).all()
    for row, line in zip(rows, drawn.tolist(), strict=True):
        assert not set(line) & set(excluded[row]) and len(set(line)) == 4


@pytest.mark.parametrize("kind", [kind for kind in DRAWN if kind not in ("bm25", "ranking")])
def test_document_anchors_get_no_relevant_queries(kind, snapshot, excluded):
    source, anchor_set = source_of(kind, 3, snapshot), snapshot.anchor_set("document")
    every = anchor_set.anchors.tolist()
    relevant = {document: {q for q, rows in enumerate(excluded) if document in rows} for document in every}
    assert set(relevant) == set().union(*POSITIVES)
    table = mined(source, snapshot, "document")
    if table:
        assert (table.anchor_side, table.candidate_side) == ("document", "query")
        assert table.anchors.tolist() == sorted(relevant)
        lines = zip(table.anchors.tolist(), table.candidates.tolist(), strict=True)
        assert not any(relevant[anchor] & set(line) for anchor, line in lines)
    rows, three = np.tile(anchor_set.anchors, 20), source.model_copy(update={"num_negatives": 3})
    drawn = three.draw(rows, table, anchor_set, np.random.default_rng(0))
    assert (drawn >= 0).all() and (drawn < QUERIES).all()
    for row, line in zip(rows.tolist(), drawn.tolist(), strict=True):
        assert not set(line) & relevant[row] and len(set(line)) == 3
