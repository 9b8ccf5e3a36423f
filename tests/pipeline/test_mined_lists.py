"""Lists of a run's positives and mined negatives."""

import numpy as np
import pytest
from helpers.mined_run import make_mined_run

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.pipeline.ranking_inputs import collection_of
from pyserini_ance.pipeline.teacher_training import MinedLists
from pyserini_ance.runs.rundir import RunDir


@pytest.fixture(scope="module")
def run(small_recipe, run_processes, tmp_path_factory) -> RunDir:
    return make_mined_run(small_recipe, run_processes, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def lists(run) -> MinedLists:
    return MinedLists.of(run, run.read_recipe(), collection_of(run))


def test_the_tables_are_those_last_in_use(run, lists):
    assert list(lists.generations) == ["ance-00000002"]
    (table,) = lists.tables
    np.testing.assert_array_equal(
        table.candidates, np.load(run.negatives / "ance-00000002/query.0/candidates.npy")
    )
    assert len(lists.queries) == 15


def test_a_list_has_a_positive_and_different_mined_negatives(lists):
    relevant = {query: set(lists.split.qrels.relevant(query).tolist()) for query in range(15)}
    drawn = list(lists.draw(45, 3, seed=7))
    for query, documents in drawn:
        positive, *negatives = documents.tolist()
        assert positive in relevant[query] and not relevant[query] & set(negatives)
        assert len(set(negatives)) == 3 and set(negatives) <= set(lists.candidates(query).tolist())
    orders = [[query for query, _ in drawn[start : start + 15]] for start in (0, 15, 30)]
    assert all(sorted(order) == list(range(15)) for order in orders) and orders[0] != orders[1]
    again = [(query, documents.tolist()) for query, documents in lists.draw(45, 3, seed=7)]
    assert again == [(query, documents.tolist()) for query, documents in drawn]
    assert again != [(query, documents.tolist()) for query, documents in lists.draw(45, 3, seed=8)]


def test_texts_are_those_that_the_teacher_reads(lists):
    ids = lists.collection.documents.rows
    query, documents = lists.texts(0, np.array([ids["red-apple"], ids["green-river"]]))
    assert query == "query of red apple" and [text.split()[:4] for text in documents] == [
        ["the", "apple", "is", "red"],
        ["the", "river", "is", "green"],
    ]


def test_candidates_of_several_tables_are_joined(lists):
    def table(anchors: list[int], candidates: list[list[int]]) -> NegativeTable:
        rows = np.array(candidates, np.int32)
        return NegativeTable(
            "query", "document", np.array(anchors, np.int32), rows, np.zeros(rows.shape, np.float32), "ann"
        )

    tables = (table([0, 2, 5], [[7, 9], [PADDING, PADDING], [4, PADDING]]), table([0, 3], [[9, 11], [8, 8]]))
    joined = MinedLists(lists.collection, lists.split, tables, {})
    assert joined.queries.tolist() == [0, 3, 5]
    assert {query: joined.candidates(query).tolist() for query in (0, 2, 3, 4, 5)} == {
        0: [7, 9, 11],
        2: [],
        3: [8],
        4: [],
        5: [4],
    }


def test_positives_of_all_kinds_are_no_negatives(lists):
    """A document that a filter promoted is one, though another table lists it; so is a judged one that
    training does not know (`positives: last`), and the answer of a query without judgments."""

    def table(candidates: list[list[int]], promoted: list[list[int]] | None = None) -> NegativeTable:
        anchors, rows = np.array([0, 1], np.int32), np.array(candidates, np.int32)
        pairs = None if promoted is None else np.array(promoted, np.int32)
        scores = np.zeros(rows.shape, np.float32)
        return NegativeTable("query", "document", anchors, rows, scores, "ann", promoted=pairs)

    texts = Texts(["a", "b"], {"text": ["?", "?"]})
    split = Split("train", texts, Qrels.of([0, 0], [3, 5], [1, 1], 2))
    tables = (table([[3, 7, 8], [7, 8, 9]]), table([[6, PADDING], [8, 4]], [[0, 5], [0, 8], [1, 9]]))
    found = MinedLists.of_tables(lists.collection, split, tables, {})
    assert [found.split.qrels.relevant(query).tolist() for query in (0, 1)] == [[3, 5, 8], [9]]
    assert [found.candidates(query).tolist() for query in (0, 1)] == [[6, 7], [4, 7, 8]]
    for query, (positive, *negatives) in found.draw(20, 3, seed=1):
        assert positive in found.split.qrels.relevant(query)
        assert set(negatives) == set(found.candidates(query).tolist())


def test_a_run_without_mined_negatives_is_refused(small_recipe, tmp_path):
    terms = {"query": {"in_batch_negatives": True}}
    stage = {"steps": 1, "batch_queries": 2, "optimizer": {"learning_rate": 1e-3}, "terms": terms}
    recipe = small_recipe({"a": stage})
    with pytest.raises(ValueError, match="has no mined negatives: .* Pass a run with a source such as `ann`"):
        MinedLists.of(RunDir(tmp_path), recipe, Collection.__new__(Collection))
