from types import SimpleNamespace

import numpy as np

from pyserini_ance.negatives.teachers.base import Pairs, TeacherContext
from pyserini_ance.negatives.teachers.hybrid import Hybrid, min_max
from pyserini_ance.storage.files import sha256_file

NAN = np.nan


def test_scores_are_scaled_within_each_group():
    scores = np.array([2, 4, 3, NAN, 7, 7, NAN, NAN], np.float32)
    groups = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    assert min_max(scores, groups).tolist() == [0, 1, 0.5, 0, 0, 0, 0, 0]
    assert min_max(np.empty(0, np.float32), np.empty(0, np.int64)).tolist() == []


def test_the_sum_of_bm25_and_the_student(split_of, snapshot_of, tmp_path):
    run = tmp_path / "bm25.trec"
    run.write_text("q0 Q0 d0 1 9.0 t\nq0 Q0 d2 2 5.0 t\nq0 Q0 d1 3 4.0 t\nq1 Q0 d1 1 2.0 t\n")
    snapshot = snapshot_of(split_of([0], [1]), [[1.0], [2.0]], [[0.0], [1.0], [0.5]], bm25=run)
    recipe = SimpleNamespace(bm25=SimpleNamespace(hits=3), cache=tmp_path)
    context = TeacherContext(recipe, snapshot)
    queries, documents = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 0, 1, 2])
    pairs = Pairs(queries, documents, queries)
    # BM25: 9, 4, 5 -> 1, 0, 0.2; q1 has one hit of 2 where others have 0 -> 0, 1, 0.
    # The student: 0, 1, 0.5 -> as they are; 0, 2, 1 -> 0, 1, 0.5.
    found = Hybrid(weights=(3, 1)).score(pairs, context)
    np.testing.assert_allclose(found, [0.75, 0.25, 0.275, 0.0, 1.0, 0.125], rtol=1e-6)
    assert context.origins == {"bm25": sha256_file(run), "student": "weights"}
    assert Hybrid().needs == {"bm25"}
