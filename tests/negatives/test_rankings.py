from helpers.filter_fixture import table_of

from pyserini_ance.negatives.rankings import Bm25, Ranking
from pyserini_ance.negatives.table import PADDING

RANKED = """\
q0 Q0 d3 1 9.5 t
q0 Q0 d1 2 9.0 t
other Q0 d9999 1 9.0 t
q0 Q0 d2 3 8.0 t
q1 Q0 d0 7 1.0 t
q1 Q0 d4 8 2.0 t
q1 Q0 d2 9 2.0 t
q0 Q0 d0 4 7.5 t
"""


def written(tmp_path, text: str):
    path = tmp_path / "a.trec"
    path.write_text(text)
    return path


def test_a_run_is_read_by_score_without_positives_and_other_queries(tmp_path, split_of, snapshot_of):
    """q0 has the positives d1 and d3, q1 has d2, and q2, which the run lacks, has d0; 5 documents."""
    snapshot = snapshot_of(split_of([1, 3], [2], [0]), [[0]] * 3, [[0]] * 5)
    table = table_of(Ranking(file=written(tmp_path, RANKED)), snapshot)
    assert table.candidates[:, :2].tolist() == [[2, 0], [4, 0], [PADDING, PADDING]]
    assert table.scores[:2, :2].tolist() == [[8.0, 7.5], [2.0, 1.0]]
    assert (table.candidates[:, 2:] == PADDING).all()
    assert table.dropped == {"known positives": 3}


def test_bm25_reads_the_ranking_of_the_run(tmp_path, split_of, snapshot_of):
    snapshot = snapshot_of(split_of([1, 3], [2]), [[0]] * 2, [[0]] * 5, bm25=written(tmp_path, RANKED))
    assert table_of(Bm25(top_k=2), snapshot).candidates.tolist() == [[2, 0], [4, 0]]
    assert Bm25().needs == {"bm25"} and Ranking(file="a.trec").needs == frozenset()


def test_margins_remove_nothing_if_the_positive_is_not_ranked(tmp_path, split_of, snapshot_of):
    snapshot = snapshot_of(split_of([3], [1]), [[0]] * 2, [[0]] * 5)
    path = written(tmp_path, "q0 Q0 d1 1 9 t\nq0 Q0 d2 2 8 t\nq1 Q0 d1 1 9 t\nq1 Q0 d2 2 8.8 t\n")
    margin = {"kind": "relative_margin", "margin": 0.1}
    table = table_of(Ranking(file=path, top_k=2, filters=[margin]), snapshot)
    assert table.candidates.tolist() == [[1, 2], [PADDING, PADDING]]
