import numpy as np
import pytest
from helpers.filter_fixture import candidates_of

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.negatives.teachers.base import Pairs, Teacher, TeacherContext, score_tables, scored_once


class Product(Teacher):
    """Scores 100 times the query's row plus the document's row."""

    kind: str = "product"

    def score(self, pairs, context):
        return (100 * pairs.queries + pairs.documents).astype(np.float32)


def table_of(anchor_set, candidates, anchors=None) -> NegativeTable:
    rows = np.array(candidates, np.int32)
    anchors = np.array(anchor_set.anchors if anchors is None else anchors, np.int32)
    scores = np.zeros(rows.shape, np.float32)
    return NegativeTable(anchor_set.anchor, anchor_set.candidate, anchors, rows, scores, source="ann")


@pytest.fixture
def context(split_of, snapshot_of, tmp_path):
    snapshot = snapshot_of(split_of([3], [0, 4]), np.zeros((2, 1)), np.zeros((6, 1)))
    snapshot.cache = tmp_path
    return TeacherContext(snapshot)


def test_candidates_of_all_tables_and_positives_are_scored(context):
    """Promoted documents too."""
    anchor_set = context.snapshot.anchor_set("query").with_positives(np.array([[0, 5]], np.int32))
    tables = [table_of(anchor_set, [[1, 2], [5, PADDING]]), table_of(anchor_set, [[2], [1]])]
    scores = score_tables(Product(), tables, anchor_set, context)
    found = scores.of(np.array([[0], [1], [0]]), np.array([[1, 2, 3, 5], [5, 1, 0, 4], [PADDING, 4, 0, 2]]))
    nan = np.nan
    expected = [[1, 2, 3, 5], [105, 101, 100, 104], [nan, nan, nan, 2]]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_documents_as_anchors_keep_query_and_document_apart(context):
    anchor_set = context.snapshot.anchor_set("document")
    assert anchor_set.anchors.tolist() == [0, 3, 4]
    scores = score_tables(Product(), [table_of(anchor_set, [[0], [1], [0]])], anchor_set, context)
    found = scores.of(np.array([[0], [3], [4]]), np.array([[0, 1], [0, 1], [0, 1]]))
    assert found.tolist() == [[0, 100], [3, 103], [4, 104]]


def test_only_anchors_that_every_table_has_are_scored(context):
    anchor_set = context.snapshot.anchor_set("query")
    tables = [table_of(anchor_set, [[1], [2]]), table_of(anchor_set, [[5]], anchors=[1])]
    scores = score_tables(Product(), tables, anchor_set, context)
    assert scores.keys.tolist() == [6 * 1 + row for row in (0, 2, 4, 5)]


def test_a_pair_is_scored_once_and_an_interrupted_call_continues(context, monkeypatch):
    monkeypatch.setattr("pyserini_ance.negatives.teachers.base.PAIRS_PER_BLOCK", 2)
    asked = []

    def score(queries, documents):
        if len(asked) == 4:
            raise KeyboardInterrupt
        asked.extend(zip(queries.tolist(), documents.tolist(), strict=True))
        return queries * 10.0 + documents

    queries, documents = np.array([0, 0, 0, 1, 1], np.int32), np.array([0, 1, 2, 0, 3], np.int32)
    pairs = Pairs(queries, documents, queries.astype(np.int64))
    with pytest.raises(KeyboardInterrupt):
        scored_once(pairs, "teacher", context, score, "teacher")
    assert asked == [(0, 0), (0, 1), (0, 2), (1, 0)]
    asked.append("a new process")
    assert scored_once(pairs, "teacher", context, score, "teacher").tolist() == [0, 1, 2, 10, 13]
    assert asked[5:] == [(1, 3)]
    last = Pairs(queries[3:], documents[3:], queries[3:])
    assert scored_once(last, "teacher", context, score, "t").tolist() == [10, 13]
    assert len(asked) == 6
    scored_once(pairs, "another teacher", context, score, "teacher")
    assert len(asked) == 11


def test_a_damaged_block_is_named_and_once_removed_scored_again(context):
    pairs = Pairs(np.array([0, 0]), np.array([1, 2]), np.array([0, 0]))

    def scores() -> list[float]:
        return scored_once(pairs, "a", context, lambda queries, documents: documents * 2.0, "t").tolist()

    assert scores() == [2, 4]
    (block,) = context.cache.rglob("*.npy")
    whole = block.read_bytes()
    for damaged in (b"", whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        block.write_bytes(damaged)
        with pytest.raises(RuntimeError, match=rf"{block.name}.* is damaged; remove it"):
            scores()
    block.unlink()
    assert scores() == [2, 4] and block.read_bytes() == whole


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_score_that_is_no_finite_number_is_an_error_and_not_kept(context, value):
    pairs = Pairs(np.array([0, 1]), np.array([1, 2]), np.array([0, 1]))
    with pytest.raises(RuntimeError, match=r"scores 1 of 2 pairs .* first query q1 with document d2: "):
        scored_once(pairs, "a", context, lambda queries, _: np.where(queries, value, 0.5), "cross-encoder")
    assert not [*context.cache.rglob("*.npy")]


def scored_by_all(world: World, folder, counts: list[int]) -> tuple[list[list[float]], list[int]]:
    """Scores of the first so many pairs, call after call, and the pairs that this process scored."""
    found = candidates_of([[0], [2]], [[1, 2], [0, 1]])
    found.snapshot.world = world
    found.snapshot.cache = folder
    context, asked = TeacherContext(found.snapshot), []

    def score(queries, documents):
        keys = 50 * queries + documents
        asked.extend(keys.tolist())
        return keys * 0.5

    results = []
    for count in counts:
        queries, documents = np.divmod(np.arange(count, dtype=np.int32), 50)
        results.append(scored_once(Pairs(queries, documents, queries), "t", context, score, "t").tolist())
    return results, asked


def test_processes_share_the_pairs(run_processes, tmp_path):
    counts = [1, 0, 6, 99]
    ends = run_processes(3, scored_by_all, tmp_path, counts)
    assert all(results == [[0.5 * key for key in range(n)] for n in counts] for results, _ in ends)
    assert sorted(key for _, asked in ends for key in asked) == list(range(99))  # each by one process
    assert all(len(asked) >= 24 for _, asked in ends)
