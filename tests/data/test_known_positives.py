import numpy as np
import pytest

from pyserini_ance.data import known_positives as module
from pyserini_ance.data.collection import Qrels, Split
from pyserini_ance.data.known_positives import KnownPositives, grades_of, is_known_positive, leave_out

LAST = 2**31 - 2  # half of the documents are near the largest int32


def test_the_inverse_agrees_with_a_slow_loop():
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, 20, (100, 2)), axis=0)
    grades = dict(zip(map(tuple, pairs.tolist()), rng.integers(0, 3, len(pairs)).tolist(), strict=True))
    qrels = Qrels.of(pairs[:, 0], pairs[:, 1], list(grades.values()), queries=20)
    known = Split("train", None, qrels).known_positives("document")
    assert (known.offsets.dtype, known.rows.dtype) == (np.int64, np.int32)
    expected = [[query for query in range(20) if grades.get((query, document))] for document in range(20)]
    assert [known.of(document).tolist() for document in range(len(known.offsets) - 1)] == expected
    assert known.grades.tolist() == [grades[q, d] for d, of in enumerate(expected) for q in of]
    assert known.anchors.tolist() == [document for document in range(20) if expected[document]]


def test_a_subset_of_known_positives_renumbers_its_rows():
    rows, grades = np.array([[7, 4, 5, 1, 2, 3], [1, 2, 1, 3, 1, 2]], np.int32)
    subset = KnownPositives(np.array([0, 2, 2, 3, 6]), rows, grades).subset(np.array([3, 0, 1]))
    assert [subset.of(row).tolist() for row in range(3)] == [[1, 2, 3], [7, 4], []]
    assert subset.offsets.tolist() == [0, 3, 5, 5] and subset.grades.tolist() == [3, 1, 2, 1, 2]


def test_rankings_without_a_row_of_each():
    rows = np.array([[4, 2, 3], [2, 3, module.PADDING], [3, 2, 4]], np.int32)
    scores = np.array([[3, 2, 1], [5, 4, -np.inf], [3, 2, 1]], np.float32)
    left = leave_out(np.array([2, 3, module.PADDING]), scores, rows, 2)
    assert left[1].tolist() == [[4, 3], [2, module.PADDING], [3, 2]]
    assert left[0].tolist() == [[3, 1], [5, -np.inf], [3, 2]]
    assert [array.dtype for array in left] == [np.float32, np.int32]


@pytest.mark.parametrize(("most", "lines"), [(0, 7), (5, 3), (16, 4096)])
def test_known_positives_and_their_grades_agree_with_a_slow_loop(most, lines, monkeypatch):
    """Anchors with few and with many positives, in blocks of lines."""
    monkeypatch.setattr(module, "MOST_COMPARED", most)
    monkeypatch.setattr(module, "LINES_PER_BLOCK", lines)
    rng, all_rows = np.random.default_rng(0), np.array([-1, *range(20), *range(LAST - 19, LAST + 1)])
    rows = [rng.choice(all_rows[1:], rng.integers(1, 30), replace=False).tolist() for _ in range(20)]
    judged = {(query, d): int(rng.integers(0, 4)) for query, own in enumerate(rows) for d in own}
    judged |= {(query, 0): 3 for query in range(20)}  # each has a positive
    qrels = Qrels.of(*zip(*judged, strict=True), list(judged.values()), 20, threshold=2)
    known_positives = Split("train", None, qrels).known_positives("query")
    rows, documents = rng.integers(0, 20, 50), rng.choice(all_rows, (50, 12))  # -1 is padding
    relevant = {pair: grade for pair, grade in judged.items() if grade > 1}
    expected = np.array([
        [relevant.get((row, d), 0) for d in line]
        for row, line in zip(rows.tolist(), documents.tolist(), strict=True)
    ])  # fmt: skip
    for kind in (np.int64, np.int32):
        given = known_positives, rows.astype(kind), documents.astype(kind)
        assert is_known_positive(*given).tolist() == (expected > 0).tolist()
        assert grades_of(*given).tolist() == expected.tolist()
