from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from pyserini_ance.data.collection import Qrels, Split
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives import table as table_module
from pyserini_ance.negatives.table import PADDING, NegativeTable, is_in_line, turnover


def table(*candidates: list[int]) -> NegativeTable:
    candidates = np.array(candidates, np.int32)
    scores = np.linspace(1, 0, candidates.size, dtype=np.float32).reshape(candidates.shape)
    anchors = np.arange(len(candidates), dtype=np.int32)
    return NegativeTable("query", "document", anchors, candidates, scores, "ann")


def test_draws_are_uniform_without_replacement_and_never_padding():
    drawn = table([4, 5, 6, PADDING], [7, 8, 9, 3]).draw(np.tile([1, 0], 6000), 2, np.random.default_rng(0))
    of_first = Counter(map(tuple, drawn[1::2].tolist()))
    assert set(of_first) == set(permutations([4, 5, 6], 2))
    expected = 6000 / 6
    chi_square = sum((count - expected) ** 2 / expected for count in of_first.values())
    assert chi_square < 20.5  # 5 degrees of freedom, p = 0.001
    assert set(map(tuple, drawn[::2].tolist())) == set(permutations([7, 8, 9, 3], 2))


@pytest.mark.parametrize("promoted", [[[0, 7], [1, 4]], []])
def test_save_and_load_round_trip(tmp_path, promoted):
    saved = replace(table([4, 5, PADDING], [1, 2, 3]), dropped={"known positives": 812, "another": 0})
    saved = replace(saved, promoted=np.array(promoted, np.int32).reshape(-1, 2))
    saved.save(tmp_path / "t")
    loaded = NegativeTable.load(tmp_path / "t")
    assert (loaded.anchor_side, loaded.candidate_side, loaded.source) == ("query", "document", "ann")
    assert loaded.dropped == {"known positives": 812, "another": 0}
    for name in ("anchors", "candidates", "scores", "promoted"):
        before, after = getattr(saved, name), getattr(loaded, name)
        assert before.dtype == after.dtype and np.array_equal(before, after)


def test_equal_tables_have_equal_bytes(tmp_path):
    kinds = (np.int32, np.int64, np.float64)
    for number, kind in enumerate(kinds):
        one = table([4, 5, PADDING], [1, 2, 3])
        fortran = np.asfortranarray(one.candidates.astype(kind))
        dropped = dict(sorted({"a": 1, "b": 2}.items(), reverse=bool(number)))
        one = replace(one, anchors=one.anchors.astype(kind), candidates=fortran, dropped=dropped)
        one.save(tmp_path / str(number))
    folders = [tmp_path / str(number) for number in range(len(kinds))]
    written = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
    assert written[0] == written[1] == written[2] and len(written[0]) == 4


@pytest.mark.parametrize(
    ("new", "old", "share"),
    [
        (([1, 2], [3, 4]), ([1, 2], [3, 4]), 0.0),
        (([1, 2], [3, 4]), ([3, 4], [1, 2]), 1.0),  # another query's candidates do not count
        (([1, 2, 3], [4, 5, 6]), ([3, 1], [6, 9]), 3 / 6),  # widths may differ
        (([1, 2], [3, PADDING]), ([1, PADDING], [PADDING, PADDING]), 2 / 3),  # padding is no candidate
        (([PADDING], [PADDING]), ([1], [2]), 0.0),
        (([5], [3]), ([1], [PADDING]), 1.0),
    ],
)
def test_turnover_is_the_share_of_new_candidates(new, old, share):
    assert turnover(table(*new), table(*old)) == pytest.approx(share)


@pytest.mark.parametrize("block", [3, 4096])
def test_rows_in_their_line_agree_with_a_slow_loop(block, monkeypatch):
    monkeypatch.setattr(table_module.known, "LINES_PER_BLOCK", block)
    rng = np.random.default_rng(0)
    rows, among = rng.integers(-1, 9, (20, 5), np.int32), rng.integers(-1, 9, (20, 4), np.int32)
    among[4:6] = PADDING
    lines = zip(rows.tolist(), among.tolist(), strict=True)
    expected = [[row != PADDING and row in line for row in of_line] for of_line, line in lines]
    assert is_in_line(rows, among).tolist() == expected
    assert is_in_line(rows, among[:, :0]).sum() == 0
    last = np.array([[2**31 - 2, 0]], np.int32)
    assert is_in_line(last, last[:, :1]).tolist() == [[True, False]]


def test_excluded_pairs_leave_the_others_in_rank_order():
    made = table([4, 5, 6, 4], [4, 5, 6, 7], [8, 4, PADDING, PADDING])
    made = replace(made, positive_scores=np.array([0.3, 0.2, 0.1], np.float32)).of_generation("a-00000000")
    judged = Qrels.of([0, 1, 2], [4, 5, 4], [1, 1, 1], 3)
    left = made.excluding(np.array([2, 0, 2]), AnchorSet(Split("train", None, judged), "query", 9))
    assert left.anchors.tolist() == [0, 2] and left.origin_counts() == {"ann of a-00000000": 3}
    assert left.candidates.tolist() == [[5, 6, PADDING, PADDING], [8, PADDING, PADDING, PADDING]]
    scores, infinite = made.scores.tolist(), -np.inf
    assert left.scores.tolist() == [[*scores[0][1:3], *[infinite] * 2], [scores[2][0], *[infinite] * 3]]
    np.testing.assert_array_equal(left.positive_scores, made.positive_scores[[0, 2]])
    drawn = left.draw(np.tile([2, 0], 1000), 2, np.random.default_rng(0))
    assert Counter(map(tuple, drawn[1::2].tolist())).keys() == {(5, 6), (6, 5)}
