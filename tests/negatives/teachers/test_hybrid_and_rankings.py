from types import SimpleNamespace

import numpy as np
import pytest

from pyserini_ance.data.scored_pairs import read_scored_pairs
from pyserini_ance.negatives.teachers import rankings
from pyserini_ance.negatives.teachers.base import Pairs, TeacherContext
from pyserini_ance.negatives.teachers.hybrid import Hybrid, min_max
from pyserini_ance.negatives.teachers.rankings import RankingTeacher
from pyserini_ance.recipe.models import Bm25
from pyserini_ance.storage.files import sha256_file

ROWS = np.array([0, 0, 1])
PAIRS = Pairs(ROWS, np.array([0, 1, 1]), ROWS)
SCORES = np.array([-1.25, 3.5, np.nan], np.float32)
NAN = np.nan


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "teacher.trec"
    path.write_text("q0 Q0 d1 1 3.5 t\nother Q0 d9 1 1.0 t\nq0 Q0 d0 2 -1.25 t\n")
    return path


@pytest.fixture
def context(split_of, snapshot_of, tmp_path):
    snapshot = snapshot_of(split_of([0], [1]), np.zeros((2, 1)), np.zeros((2, 1)))
    snapshot.cache = tmp_path / "cache"
    return TeacherContext(snapshot)


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
    assert not [*context.cache.rglob("*.npy")]


def test_scores_are_scaled_within_each_group():
    scores = np.array([2, 4, 3, NAN, 7, 7, NAN, NAN], np.float32)
    assert min_max(scores, np.array([0, 0, 0, 0, 1, 1, 2, 2])).tolist() == [0, 1, 0.5, 0, 0, 0, 0, 0]
    assert min_max(np.empty(0, np.float32), np.empty(0, np.int64)).tolist() == []


def test_the_sum_of_bm25_and_the_student(split_of, snapshot_of, tmp_path):
    run = tmp_path / "bm25.trec"
    run.write_text("q0 Q0 d0 1 9.0 t\nq0 Q0 d2 2 5.0 t\nq0 Q0 d1 3 4.0 t\nq1 Q0 d1 1 2.0 t\n")
    snapshot = snapshot_of(split_of([0], [1]), [[1.0], [2.0]], [[0.0], [1.0], [0.5]], bm25=run)
    snapshot.cache, snapshot.bm25 = tmp_path, Bm25(hits=3)
    context = TeacherContext(snapshot)
    queries, documents = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 0, 1, 2])
    pairs = Pairs(queries, documents, queries)
    # BM25: 9, 4, 5 -> 1, 0, 0.2; q1 has one hit of 2 where others have 0 -> 0, 1, 0.
    # The student: 0, 1, 0.5 -> as they are; 0, 2, 1 -> 0, 1, 0.5.
    np.testing.assert_allclose(Hybrid().score(pairs, context), [0.5, 0.5, 0.35, 0.0, 1.0, 0.25], rtol=1e-6)
    assert context.origins == {"bm25": sha256_file(run), "student": "weights"}
    assert Hybrid().needs == {"bm25"}


@pytest.mark.parametrize(
    ("scores", "highest", "expected"),
    [
        ([4, NAN, 0, 2], None, [1, 0.5, 0, 0.25]),
        ([4, NAN, 0, 2], 4.0, [1, 1, 0, 0.25]),
        ([NAN, 2, NAN, NAN], 4.0, [1, 0.75, 0, 0]),  # one grade, which has no range
        ([3, 3, 3, 3], 3.0, [1, 1, 0.5, 0.5]),
    ],
)
def test_grades_are_absolute_and_without_one_a_teacher_has_no_part_in_the_mean(scores, highest, expected):
    both = [(None, np.array([5, 5, 1, 1], np.float32)), (highest, np.array(scores, np.float32))]
    teachers = [SimpleNamespace(score=lambda *_, of=of: of, highest=one) for one, of in both]
    pairs = Pairs(*np.zeros((3, 4), np.int64))
    found = Hybrid.model_construct(teachers=teachers).score(pairs, None)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    if highest:
        alone = Hybrid.model_construct(teachers=teachers[1:]).score(pairs, None)
        np.testing.assert_allclose(alone, both[1][1] / highest, rtol=1e-6)
        inner = Hybrid.model_construct(teachers=teachers[1:])
        nested = Hybrid.model_construct(teachers=[inner, teachers[0]]).score(pairs, None)
        np.testing.assert_allclose(nested, expected, rtol=1e-6)
