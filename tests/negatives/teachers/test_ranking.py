from types import SimpleNamespace

import numpy as np
import pytest

from pyserini_ance.negatives.teachers.base import Pairs, TeacherContext
from pyserini_ance.negatives.teachers.ranking import RankingTeacher
from pyserini_ance.storage.files import sha256_file


def test_scores_come_from_the_file(split_of, snapshot_of, tmp_path):
    path = tmp_path / "teacher.trec"
    path.write_text("q0 Q0 d1 1 3.5 t\nother Q0 d9 1 1.0 t\nq0 Q0 d0 2 -1.25 t\n")
    snapshot = snapshot_of(split_of([0], [1]), np.zeros((2, 1)), np.zeros((2, 1)))
    rows = np.array([0, 0, 1])
    pairs = Pairs(rows, np.array([0, 1, 1]), rows)
    context = TeacherContext(SimpleNamespace(), snapshot)
    found = RankingTeacher(file=path).score(pairs, context)
    assert context.origins == {f"ranking {path}": sha256_file(path)}
    np.testing.assert_array_equal(found, np.array([-1.25, 3.5, np.nan], np.float32))


def test_a_missing_file_is_named():
    with pytest.raises(FileNotFoundError, match="teacher.file"):
        _ = RankingTeacher(file="nowhere.trec").files
