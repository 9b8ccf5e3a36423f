from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from pyserini_ance.negatives.table import PADDING, NegativeTable, turnover


def table(*candidates: list[int]) -> NegativeTable:
    candidates = np.array(candidates, np.int32)
    scores = np.linspace(1, 0, candidates.size, dtype=np.float32).reshape(candidates.shape)
    return NegativeTable("query", "document", np.arange(len(candidates), dtype=np.int32), candidates, scores, "ann")


def test_counts_leave_padding_out():
    assert table([4, 5, PADDING], [1, 2, 3], [PADDING] * 3).counts.tolist() == [2, 3, 0]


def test_draws_are_uniform_without_replacement_and_never_padding():
    drawn = table([4, 5, 6, PADDING], [7, 8, 9, 3]).draw(np.tile([1, 0], 6000), 2, np.random.default_rng(0))
    of_first = Counter(map(tuple, drawn[1::2].tolist()))
    assert set(of_first) == set(permutations([4, 5, 6], 2))
    expected = 6000 / 6
    chi_square = sum((count - expected) ** 2 / expected for count in of_first.values())
    assert chi_square < 20.5  # 5 degrees of freedom, p = 0.001
    assert set(map(tuple, drawn[::2].tolist())) == set(permutations([7, 8, 9, 3], 2))


def test_padding_stands_where_there_are_too_few():
    drawn = table([4, PADDING, PADDING], [PADDING] * 3).draw(np.array([0, 1]), 2, np.random.default_rng(0))
    assert drawn.tolist() == [[4, PADDING], [PADDING, PADDING]]


def test_more_than_the_table_is_wide_can_be_asked_for():
    drawn = table([4, 5]).draw(np.array([0]), 4, np.random.default_rng(0))
    assert sorted(drawn[0, :2].tolist()) == [4, 5] and drawn[0, 2:].tolist() == [PADDING, PADDING]


def test_save_and_load_round_trip(tmp_path):
    saved = table([4, 5, PADDING], [1, 2, 3])
    saved.save(tmp_path / "t.safetensors")
    loaded = NegativeTable.load(tmp_path / "t.safetensors")
    assert (loaded.anchor_side, loaded.candidate_side, loaded.source) == ("query", "document", "ann")
    for name in ("anchors", "candidates", "scores"):
        before, after = getattr(saved, name), getattr(loaded, name)
        assert before.dtype == after.dtype and np.array_equal(before, after)


def test_equal_tables_are_equal_bytes(tmp_path):
    for number in range(20):
        table([4, 5, PADDING]).save(tmp_path / str(number))
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


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
