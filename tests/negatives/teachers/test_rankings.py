from types import SimpleNamespace

import numpy as np
import pytest

from pyserini_ance.data.scored_pairs import read_scored_pairs
from pyserini_ance.negatives.teachers import rankings
from pyserini_ance.negatives.teachers.base import Pairs, TeacherContext
from pyserini_ance.negatives.teachers.rankings import RankingTeacher


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "teacher.trec"
    path.write_text("q0 Q0 d1 1 3.5 t\nother Q0 d9 1 1.0 t\nq0 Q0 d0 2 -1.25 t\n")
    return path


@pytest.fixture
def context(split_of, snapshot_of, tmp_path):
    snapshot = snapshot_of(split_of([0], [1]), np.zeros((2, 1)), np.zeros((2, 1)))
    return TeacherContext(SimpleNamespace(cache=tmp_path / "cache"), snapshot)


ROWS = np.array([0, 0, 1])
PAIRS = Pairs(ROWS, np.array([0, 1, 1]), ROWS)
SCORES = np.array([-1.25, 3.5, np.nan], np.float32)


def test_the_lines_of_a_file_are_read_once(path, context, monkeypatch):
    RankingTeacher(file=path).score(PAIRS, context)
    with monkeypatch.context() as patched:
        patched.delattr(rankings, "read_scored_pairs")
        np.testing.assert_array_equal(RankingTeacher(file=path).score(PAIRS, context), SCORES)
    path.write_text("q0 Q0 d1 1 7.5 t\n")
    changed = RankingTeacher(file=path).score(PAIRS, context)
    np.testing.assert_array_equal(changed, np.array([np.nan, 7.5, np.nan], np.float32))


def test_a_file_that_changes_while_it_is_read_is_not_kept(path, context, monkeypatch):
    def read_and_change(*arguments):
        scored = read_scored_pairs(*arguments)
        path.write_text("q0 Q0 d1 1 9.0 t\n")
        return scored

    monkeypatch.setattr(rankings, "read_scored_pairs", read_and_change)
    with pytest.raises(RuntimeError, match=f"{path} has changed while its scores were read; start again"):
        RankingTeacher(file=path).score(PAIRS, context)
    assert not [*context.recipe.cache.rglob("*.npy")]
