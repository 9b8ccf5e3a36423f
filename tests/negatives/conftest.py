"""A collection without texts, and snapshots with given vectors instead of encoded ones."""

import numpy as np
import pytest

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.recipe.models import Encoding


class GivenVectors(Snapshot):
    query_vectors = document_vectors = None

    def __init__(self, data: PreparedData, queries: np.ndarray, documents: np.ndarray):
        super().__init__(None, "weights", data, Encoding(), None, "cpu", World())
        self.query_vectors, self.document_vectors = queries, documents


@pytest.fixture(scope="session")
def split_of():
    """A split whose query q0, q1, ... has the document rows given as positives."""

    def make(*positives: list[int], texts: list[str] | None = None) -> Split:
        pairs = [(query, document) for query, rows in enumerate(positives) for document in rows]
        qrels = Qrels.of(*zip(*pairs, strict=True), [1] * len(pairs), len(positives))
        ids = [f"q{i}" for i in range(len(positives))]
        return Split("train", Texts(ids, {"text": texts or [f"{id}?" for id in ids]}), qrels)

    return make


@pytest.fixture(scope="session")
def snapshot_of():
    """A snapshot of a split with given vectors of its queries and of documents d0, d1, ..."""

    def make(split: Split, queries, documents, texts: list[str] | None = None, **rankings) -> Snapshot:
        ids = [f"d{i}" for i in range(len(documents))]
        corpus = Texts(ids, {"text": texts or [f"{id}!" for id in ids]})
        data = PreparedData(Collection(corpus, {"train": split}), None, {}, "train", "", rankings)
        return GivenVectors(data, np.asarray(queries, np.float32), np.asarray(documents, np.float32))

    return make
