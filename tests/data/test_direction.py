import numpy as np

from pyserini_ance.data.collection import Qrels, Split, Texts
from pyserini_ance.data.direction import Direction

POSITIVES = [[0, 7], [2], [7, 5], [3]]
PAIRS = [(query, document) for query, rows in enumerate(POSITIVES) for document in rows]
SPLIT = Split("train", Texts([f"q{i}" for i in range(4)], {"text": ["?"] * 4}), Qrels.of(*zip(*PAIRS, strict=True), [1] * len(PAIRS), 4))


def anchors(side: str, chunk: list[int] | None) -> list[int]:
    return Direction(SPLIT, side, 10, chunk and np.array(chunk)).anchors.tolist()


def test_anchors_of_either_side():
    assert anchors("query", None) == [0, 1, 2, 3] and anchors("document", None) == [0, 2, 3, 5, 7]


def test_a_chunk_holds_some_queries_or_what_is_relevant_to_them():
    assert anchors("query", [1, 2]) == [1, 2] and anchors("document", [1, 2]) == [2, 5, 7]
    assert Direction(SPLIT, "document", 10, np.array([0])).anchors.dtype == np.int32
