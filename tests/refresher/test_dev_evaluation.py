from math import log2

import numpy as np
import pytest

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.recipe.models import Encoding
from pyserini_ance.recipe.refresh_settings import Evaluate
from pyserini_ance.refresher.dev_evaluation import evaluate_on_dev

DOCUMENTS = 400
# query 0: documents 300 (grade 2) and 301; query 1: document 302, and 303 judged not relevant; query 2:
# document 399
QRELS = Qrels.of([0, 0, 1, 1, 2], [300, 301, 302, 303, 399], [2, 1, 1, 0, 1], 3)
SPLIT = Split("dev", Texts(["a", "b", "c"], {"text": ["?"] * 3}), QRELS)


class GivenScores(Snapshot):
    """A snapshot in which query q scores document d by `scores[q, d]`."""

    document_vectors = passages = None
    documents = Texts([f"d{i:03}" for i in range(DOCUMENTS)], {"text": ["!"] * DOCUMENTS})
    collection = Collection(documents, {"dev": SPLIT})

    def __init__(self, scores: np.ndarray):
        super().__init__(None, "weights", None, Encoding(), None, "cpu", World())
        self.document_vectors = scores.T.astype(np.float32)
        self.sampled = None

    def encode_queries(self, split: str, rows: np.ndarray) -> np.ndarray:
        assert split == "dev"
        return np.eye(3, dtype=np.float32)[rows]

    def encode_documents(self, rows: np.ndarray, from_all: bool) -> tuple[np.ndarray, None]:
        self.sampled = rows
        return self.document_vectors[rows], None


@pytest.fixture
def snapshot() -> GivenScores:
    """Relevant ranks: query 0: 3 and 5; query 1: 2 (its 1 is judged not relevant); query 2: 151."""
    scores = np.tile(-np.arange(DOCUMENTS, dtype=float), (3, 1))
    scores[0, [10, 11, 12]], scores[0, 301], scores[0, 300] = [9, 8, 6], 5, 7  # 10, 11, 300, 12, 301
    scores[1, 303], scores[1, 302] = 9, 8
    scores[2, 399] = -149.5
    return GivenScores(scores)


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        ("RR@10", (1 / 3 + 1 / 2 + 0) / 3),
        ("R@5", (1 + 1 + 0) / 3),
        ("R@100", 2 / 3),
        ("R@200", 1.0),  # as deep as the measure looks
        ("Success@1", 0.0),
        ("RR(rel=2)@10", (1 / 3) / 3),
        # Grades are gains. Query 0: 2 at rank 3 and 1 at rank 5, ideal 2 and 1; query 1: 1 at rank 2.
        ("nDCG@10", ((1 + 1 / log2(6)) / (2 + 1 / log2(3)) + 1 / log2(3)) / 3),
    ],
)
def test_values_by_hand(snapshot, measure, value):
    found = evaluate_on_dev(snapshot, Evaluate(every_steps=1, measure=measure), seed=0)
    assert found == {"dev": pytest.approx(value)}


@pytest.mark.parametrize("seed", range(5))
def test_sample_documents_hold_all_that_is_judged(snapshot, seed):
    value = evaluate_on_dev(snapshot, Evaluate(every_steps=1, sample_documents=50), seed)["dev"]
    kept = snapshot.sampled.tolist()
    assert len(kept) == len(set(kept)) == 50 and {300, 301, 302, 303, 399} <= set(kept)
    ranked = [sorted(kept, key=lambda document: -scores[document]) for scores in snapshot.document_vectors.T]
    relevant = [[300, 301], [302], [399]]
    ranks = [min(own.index(row) + 1 for row in rows) for own, rows in zip(ranked, relevant, strict=True)]
    assert value == pytest.approx(sum(1 / rank if rank <= 10 else 0 for rank in ranks) / 3)


class TwoSplits(GivenScores):
    """Queries 0 and 1 are one split, query 2 another."""

    parts = {"one": SPLIT.qrels.subset(np.arange(2)), "two": SPLIT.qrels.subset(np.array([2]))}
    collection = Collection(GivenScores.collection.documents, {
        name: Split(name, Texts(["a", "b"][:n], {"text": ["?"] * n}), qrels)
        for name, qrels in parts.items()
        for n in [len(qrels.offsets) - 1]
    })  # fmt: skip

    def encode_queries(self, split: str, rows: np.ndarray) -> np.ndarray:
        return np.eye(3, dtype=np.float32)[rows + (2 if split == "two" else 0)]


@pytest.mark.parametrize("sample", [None, 50])
def test_the_document_with_the_id_of_a_query_is_left_out(snapshot, sample):
    """Query 0 is document 10, its first hit, and query 1 document 303, its first."""
    splits = {"dev": Split("dev", Texts(["d010", "d303", "d398"], {"text": ["?"] * 3}), QRELS)}
    snapshot.collection = Collection(GivenScores.collection.documents, splits, ignore_identical_ids=True)
    values = evaluate_on_dev(snapshot, Evaluate(every_steps=1, measure="RR@3", sample_documents=sample), 0)
    assert values["dev"] >= (1 / 2 + 1) / 3
    assert sample or values == {"dev": pytest.approx((1 / 2 + 1) / 3)}


def test_each_split_has_its_own_value(snapshot):
    both = TwoSplits(snapshot.document_vectors.T)
    values = evaluate_on_dev(both, Evaluate(every_steps=1, measure="R@200", split=["two", "one"]), seed=0)
    assert list(values) == ["two", "one"] and values == pytest.approx({"one": 1.0, "two": 1.0})
    values = evaluate_on_dev(both, Evaluate(every_steps=1, split=["one", "two"]), seed=0)
    assert values == pytest.approx({"one": (1 / 3 + 1 / 2) / 2, "two": 0})
    assert evaluate_on_dev(both, Evaluate(every_steps=1, split=["one"]), seed=0) == {"one": values["one"]}
