import gzip
from dataclasses import replace

import pytest

from pyserini_ance.data.direction import Direction
from pyserini_ance.data.stored import open_collection, store_collection
from pyserini_ance.negatives.run import Run
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


@pytest.fixture
def snapshot(split_of, snapshot_of):
    """q0 has the positives d1 and d3, q1 has d2, and q2, which the run lacks, has d0; 5 documents."""
    return snapshot_of(split_of([1, 3], [2], [0]), [[0]] * 3, [[0]] * 5)


def written(tmp_path, text: str):
    path = tmp_path / "a.trec"
    path.write_text(text)
    return path


def test_a_run_is_read_by_score_without_positives_and_other_queries(tmp_path, snapshot):
    table = Run(file=written(tmp_path, RANKED)).mine(snapshot, "query")
    assert table.candidates[:, :2].tolist() == [[2, 0], [4, 0], [PADDING, PADDING]]
    assert table.scores[:2, :2].tolist() == [[8.0, 7.5], [2.0, 1.0]]
    assert (table.candidates[:, 2:] == PADDING).all()
    assert table.dropped == {"known positives": 3}


def test_ties_stay_in_the_order_of_the_file(tmp_path, snapshot):
    path = written(tmp_path, "q0 Q0 d4 1 5 t\nq0 Q0 d0 2 5 t\nq0 Q0 d2 3 5 t\n")
    assert Run(file=path, depth=3).mine(snapshot, "query").candidates[0].tolist() == [4, 0, 2]


def test_positives_in_the_run_cost_no_depth(tmp_path, snapshot):
    assert Run(file=written(tmp_path, RANKED), depth=2).mine(snapshot, "query").candidates[0].tolist() == [2, 0]


def test_an_unknown_document_is_refused_with_file_and_query(tmp_path, snapshot):
    path = written(tmp_path, RANKED.replace("q1 Q0 d4", "q1 Q0 d77"))
    with pytest.raises(ValueError, match=r"a\.trec ranks document 'd77' for query 'q1', but the collection has no such document"):
        Run(file=path).mine(snapshot, "query")


def test_a_stored_collection_gives_the_same_table(tmp_path, snapshot):
    source, read = Run(file=written(tmp_path, RANKED)), snapshot.collection
    expected = source.mine(snapshot, "query")
    store_collection(read, tmp_path)
    snapshot.data = replace(snapshot.data, collection=open_collection(tmp_path, read.digest))
    found = source.mine(snapshot, "query")
    assert (found.candidates == expected.candidates).all() and found.dropped == expected.dropped
    with pytest.raises(ValueError, match="ranks document 'd77' for query 'q1', but the collection has no such document"):
        Run(file=written(tmp_path, RANKED.replace("q1 Q0 d4", "q1 Q0 d77"))).mine(snapshot, "query")


def test_triples_give_the_negatives_in_their_order(tmp_path, snapshot):
    path = tmp_path / "qidpidtriples.tsv"
    path.write_text("q0\td1\td4\nq1\td2\td0\nq0\td3\td2\nq0\td1\td2\nq0\td1\td3\n")
    table = Run(file=path, depth=2).mine(snapshot, "query")
    assert table.candidates.tolist() == [[4, 2], [0, PADDING], [PADDING, PADDING]]
    assert table.dropped == {"known positives": 1}


def test_a_run_of_another_split_is_refused(tmp_path, snapshot):
    with pytest.raises(ValueError, match=r"a\.trec ranks documents for none of the 3 queries of split 'train'"):
        Run(file=written(tmp_path, "x0 Q0 d1 1 5 t\n")).mine(snapshot, "query")


def test_without_a_file_the_runs_own_bm25_ranking_is_taken(tmp_path, split_of, snapshot_of):
    snapshot = snapshot_of(split_of([1, 3], [2]), [[0]] * 2, [[0]] * 5, bm25=written(tmp_path, RANKED))
    assert Run(depth=2).mine(snapshot, "query").candidates.tolist() == [[2, 0], [4, 0]]
    assert Run().needs == {"bm25"} and Run(file="a.trec").needs == frozenset()


def test_a_missing_file_is_named_with_its_key(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*nowhere\.trec.*stages\.<stage>\.terms\.<term>\.negatives\.<position>\.file="):
        Run(file=tmp_path / "nowhere.trec").files


def test_a_compressed_file_is_read_too(tmp_path, snapshot):
    (tmp_path / "a.trec.gz").write_bytes(gzip.compress(RANKED.encode()))
    source = Run(file=tmp_path / "a.trec", depth=2)
    source.check_data(Direction(snapshot.split, "query", 5))
    assert source.mine(snapshot, "query").candidates[0].tolist() == [2, 0]


def test_a_ranking_of_documents_cannot_serve_documents(split_of):
    with pytest.raises(ValueError, match="cannot serve a term with `anchor: document`"):
        Run().check_data(Direction(split_of([0], [1]), "document", 2))


def test_guards_see_the_scores_that_the_run_gives_positives(tmp_path, snapshot):
    """q0's best positive has 9.5, q1's 2.0; q2 is not ranked."""
    path = written(tmp_path, RANKED + "q0 Q0 d4 9 9.4 t\n")
    table = Run(file=path, depth=3, guards=[{"kind": "margin", "margin": 0.5}]).mine(snapshot, "query")
    assert table.candidates.tolist() == [[2, 0, PADDING], [0, PADDING, PADDING], [PADDING] * 3]
    assert table.dropped == {"known positives": 3, "margin": 2}


def test_where_a_positive_is_not_ranked_margins_leave_all(tmp_path, split_of, snapshot_of):
    snapshot = snapshot_of(split_of([3], [1]), [[0]] * 2, [[0]] * 5)
    path = written(tmp_path, "q0 Q0 d1 1 9 t\nq0 Q0 d2 2 8 t\nq1 Q0 d1 1 9 t\nq1 Q0 d2 2 8.8 t\n")
    table = Run(file=path, depth=2, guards=[{"kind": "ratio", "ratio": 0.9}]).mine(snapshot, "query")
    assert table.candidates.tolist() == [[1, 2], [PADDING, PADDING]]
