import numpy as np
import pytest

from pyserini_ance.data import known_positives as module
from pyserini_ance.data.collection import Qrels, Split
from pyserini_ance.data.known_positives import grades_of, is_known_positive

LAST = 2**31 - 2  # half of the documents are near the largest int32


@pytest.mark.parametrize(("most", "lines"), [(0, 7), (5, 3), (16, 4096)])
def test_known_positives_and_their_grades_agree_with_a_slow_loop(most, lines, monkeypatch):
    """Anchors with few and with many positives, in blocks of lines."""
    monkeypatch.setattr(module, "MOST_COMPARED", most)
    monkeypatch.setattr(module, "LINES_PER_BLOCK", lines)
    rng, all_rows = np.random.default_rng(0), np.array([-1, *range(20), *range(LAST - 19, LAST + 1)])
    judged = {
        (query, int(d)): int(rng.integers(0, 4))
        for query in range(20)
        for d in rng.choice(all_rows[1:], rng.integers(1, 30), replace=False)
    }
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
