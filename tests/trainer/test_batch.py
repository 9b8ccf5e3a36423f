from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pyserini_ance.data.collection import Qrels, Split, Texts
from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.table import PADDING, NegativeTable
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.components import SettingError
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.trainer import batch as batch_module
from pyserini_ance.trainer.batch import Batch, TermRows, anchor_sets_of, plan_batch

POSITIVES = [[0], [1, 2], [3], [4, 5, 6], [7], [8], [9]]
DOCUMENTS = 50
ROWS = np.arange(20, 48).reshape(7, 4)
TABLES = {("query", 1): NegativeTable("query", "document", np.arange(7), ROWS, np.zeros((7, 4)), "ann")}
DUAL = {"anchor": "document", "negatives": ["random"]}
PROMOTE = {"kind": "teacher", "teacher": "student", "margin": 0, "then": "promote"}
ANN = {"negatives": [{"kind": "ann", "filters": [PROMOTE]}]}


@pytest.fixture(scope="module")
def split() -> Split:
    pairs = [(query, document) for query, rows in enumerate(POSITIVES) for document in rows]
    qrels = Qrels.of(*zip(*pairs, strict=True), [1] * len(pairs), len(POSITIVES))
    return Split("train", Texts([f"q{i}" for i in range(7)], {"text": ["?"] * 7}), qrels)


def stage(**settings) -> Stage:
    negatives = [{"kind": "random", "num_negatives": 3}, {"kind": "ann", "num_negatives": 2}]
    base = {"steps": 10, "batch_queries": 4, "optimizer": {"learning_rate": 1.0}}
    base["refresh"] = {"every_steps": 5}
    return Stage.model_validate({**base, "terms": {"query": {"negatives": negatives}}, **settings})


def plan(split: Split, step: int, seed: int = 7, number: int = 0, tables=TABLES, **settings) -> Batch:
    return plan_batch(stage(**settings), number, step, seed, anchor_sets(split, tables), tables)


def anchor_sets(split: Split, tables, rows=range(7)) -> dict:
    counts = {"query": DOCUMENTS, "document": len(split.queries)}
    judged = {side: AnchorSet(split, side, count) for side, count in counts.items()}
    return anchor_sets_of(judged, tables.values(), np.array(rows))


def rows(batch: Batch) -> tuple:
    parts = (batch.queries, batch.terms["query"].positives, batch.terms["query"].negatives)
    return tuple(part.tolist() for part in parts)


@pytest.mark.parametrize("step", [0, 1, 12345])
def test_equal_seeds_give_equal_draws_whatever_the_micro_batch(split, step):
    whole = plan(split, step)
    for size in (1, 2, 3, 4, 100):
        assert rows(plan(split, step, chunk_queries=size)) == rows(whole)
        chunks = whole.chunks(size)
        assert max(len(chunk.queries) for chunk in chunks) <= size
        assert tuple(sum(parts, []) for parts in zip(*map(rows, chunks), strict=True)) == rows(whole)


def test_a_stage_draws_the_queries_of_its_splits_alone(split):
    """Each once an epoch; all positives stay known."""
    sets = anchor_sets(split, TABLES, rows=[1, 4, 5])
    drawn = [plan_batch(stage(), 0, step, 7, sets, TABLES).queries for step in range(6)]
    assert [sorted(epoch) for epoch in np.concatenate(drawn).reshape(8, 3).tolist()] == [[1, 4, 5]] * 8
    assert sets["query"].known_positives is anchor_sets(split, TABLES)["query"].known_positives


def test_seed_stage_and_step_each_change_the_draw(split):
    drawn = [rows(plan(split, *where)) for where in [(0, 7, 0), (1, 7, 0), (0, 8, 0), (0, 7, 1)]]
    assert all(a != b for i, a in enumerate(drawn) for b in drawn[:i])


@pytest.mark.parametrize("size", [1, 3, 4, 7, 20])
def test_an_epoch_visits_every_query_once(split, size):
    order = np.concatenate([plan(split, step, batch_queries=size).queries for step in range(70)])
    epochs = [order[start : start + 7].tolist() for start in range(0, len(order) // 7 * 7, 7)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len(set(map(tuple, epochs[:10]))) > 5  # shuffled anew


def test_queries_in_a_row_are_the_same_order_each_several_times_with_draws_of_its_own(split):
    """microsoft/ANCE's 20 triples of a query in a row, which go on from one batch to the next."""
    batches = [plan(split, step, batch_queries=4, repeats_per_query=3) for step in range(70)]
    plain = np.concatenate([plan(split, step, batch_queries=4).queries for step in range(24)])
    assert np.concatenate([batch.queries for batch in batches]).tolist() == np.repeat(plain, 3)[:280].tolist()
    drawn = np.concatenate([batch.terms["query"].negatives for batch in batches])
    assert all(not np.array_equal(*rows) for rows in zip(drawn[0::3], drawn[1::3], strict=False))


def part(anchors: list[int], side: str = "query") -> NegativeTable:
    candidates = np.tile(np.arange(20, 24) if side == "query" else np.arange(7), (len(anchors), 1))
    other = "document" if side == "query" else "query"
    return NegativeTable(side, other, np.array(anchors), candidates, np.zeros(candidates.shape), "ann")


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ({("query", 1): part([1, 3, 4])}, [1, 3, 4]),
        ({("query", 1): part([1, 3, 4]), ("query", 0): part(list(range(7)))}, [1, 3, 4]),
        ({("query", 1): part([1, 3, 4]), ("query", 2): part([0, 3, 4])}, [3, 4]),
        # 3 has the positive 6 too
        ({("query", 1): part([0, 1, 2, 3]), ("dual", 0): part([1, 2, 3, 4, 5, 9], "document")}, [1, 2]),
    ],
)
def test_queries_without_candidates_wait_for_another_refresh(split, tables, expected):
    steps = range(2 * (size := len(expected)))
    order = np.concatenate([plan(split, step, tables=tables, batch_queries=3).queries for step in steps])
    epochs = [order[start : start + size].tolist() for start in range(0, len(order), size)]
    assert len(epochs) == 6 and all(sorted(epoch) == expected for epoch in epochs)


def test_tables_without_a_common_query_are_an_error(split):
    tables = {("query", 1): part([1, 3]), ("query", 2): part([0, 4])}
    with pytest.raises(SettingError, match="no training query .* lower min_candidates"):
        plan(split, 0, tables=tables)


def test_each_source_draws_from_its_own_table(split):
    batch = plan(split, 3)
    random, mined = batch.terms["query"].negatives[:, :3], batch.terms["query"].negatives[:, 3:]
    assert all(len(set(line)) == 3 for line in random.tolist())
    for query, line in zip(batch.queries, mined.tolist(), strict=True):
        assert set(line) <= set(range(20 + 4 * query, 24 + 4 * query)) and len(set(line)) == 2


def test_each_text_is_encoded_once_and_found_again():
    queries, positives = np.array([5, 2, 5]), np.array([[9, PADDING], [4, 7], [9, 1]])
    a = TermRows("query", queries, positives, np.array([[7], [PADDING], [4]]))
    b = TermRows("document", positives[:, 0], queries[:, None], np.array([[8], [5], [PADDING]]))
    batch = Batch(queries, {"a": a, "b": b})
    assert batch.unique["query"].tolist() == [2, 5, 8]
    assert batch.positions("query", queries).tolist() == [1, 0, 1]
    assert batch.unique["document"].tolist() == [1, 4, 7, 9]
    places = batch.positions("document", positives)
    assert batch.unique["document"][places][positives != PADDING].tolist() == [9, 4, 7, 9, 1]


def test_a_term_with_document_anchors_takes_the_positives_drawn_and_other_queries(split):
    dual = {"anchor": "document", "negatives": [{"kind": "random", "num_negatives": 3}]}
    terms = {"query": {"negatives": ["random"]}, "dual": dual}
    for step in range(20):
        batch = plan(split, step, terms=terms, refresh=None, batch_queries=7)
        dual = batch.terms["dual"]
        assert dual.anchors.tolist() == batch.terms["query"].positives[:, 0].tolist()
        assert dual.positives[:, 0].tolist() == batch.queries.tolist()
        assert not (dual.negatives == batch.queries[:, None]).any()
        assert (dual.negatives < 7).all() and (dual.negatives >= 0).all()


def test_document_anchors_need_one_positive_and_tables_that_nothing_promotes_to():
    with pytest.raises(ValueError, match="gives a term with document anch"):
        stage(terms={"dual": DUAL}, refresh=None, positives="all")
    with pytest.raises(ValueError, match="promote`, but terms.dual"):
        stage(terms={"query": ANN, "dual": {**DUAL, "negatives": ["ann"]}})
    stage(terms={"query": ANN, "dual": {"anchor": "document", "in_batch_negatives": True}})


def promoting(pairs: list[list[int]], tables=TABLES) -> dict:
    """The tables, the first of which promotes these pairs."""
    key, table = next(iter(tables.items()))
    return {**tables, key: replace(table, promoted=np.array(pairs, np.int32).reshape(-1, 2))}


def test_promoted_documents_are_positives_in_every_draw(split):
    """Query 1 has 24 and 40 promoted, query 3 has 48. 24 is in the table of query 1, as if another source had
    found it; only random negatives could draw 48."""
    tables = promoting([[1, 24], [1, 40], [3, 48]])
    known = [*POSITIVES[:1], [1, 2, 24, 40], [3], [4, 5, 6, 48], *POSITIVES[4:]]
    drawn, negatives = Counter(), Counter()
    for step in range(600):
        batch = plan(split, step, tables=tables, batch_queries=7)
        term = batch.terms["query"]
        for query, (positive,), line in zip(batch.queries, term.positives, term.negatives, strict=True):
            assert positive in known[query] and not set(known[query]) & set(line.tolist())
            drawn[positive] += 1
            negatives.update((query, row) for row in line[3:])
    assert sum((drawn[row] - 150) ** 2 / 150 for row in (1, 2, 24, 40)) < 16.3  # 3 degrees, p = 0.001
    assert sum((drawn[row] - 150) ** 2 / 150 for row in (4, 5, 6, 48)) < 16.3
    assert all(negatives[1, row] > 300 for row in (25, 26, 27))  # 2 of 3, in each of 600 steps: 400
    whole = plan(split, 0, tables=tables, batch_queries=7, positives="all").terms["query"]
    for query, line in zip(whole.anchors, whole.positives.tolist(), strict=True):
        assert [row for row in line if row != PADDING] == known[query]
    first = plan(split, 0, tables=tables, batch_queries=7, positives="first").terms["query"]
    assert [row for (row,) in first.positives.tolist()] == [POSITIVES[query][0] for query in first.anchors]


def test_promoted_documents_are_anchors_with_the_queries_that_they_are_relevant_to(split):
    dual = {"anchor": "document", "negatives": [{"kind": "random", "num_negatives": 5}]}
    terms = {"query": {"negatives": [{"kind": "ann"}]}, "dual": dual}
    tables, seen = promoting([[1, 40], [5, 40]], {("query", 0): next(iter(TABLES.values()))}), 0
    for step in range(40):
        dual = plan(split, step, tables=tables, terms=terms, batch_queries=7).terms["dual"]
        for document, line in zip(dual.anchors.tolist(), dual.negatives.tolist(), strict=True):
            assert document != 40 or not {1, 5} & set(line)
            seen += document == 40
    assert seen > 10


def test_queries_are_drawn_from_those_of_every_table_even_if_all_have_equally_many():
    """Queries 0 and 1 are judged. A static table has one more, which a refresh had found a positive for, and
    the newest one another."""
    split = Split("train", Texts(list("abcd"), {"text": ["?"] * 4}), Qrels.of([0, 1], [0, 1], [1, 1], 4))
    rows = np.arange(20, 29).reshape(3, 3)
    given = {"bm25": np.array([0, 1, 2]), "ann": np.array([0, 1, 3])}.items()
    bm25, ann = (NegativeTable("query", "document", own, rows, np.zeros((3, 3)), kind) for kind, own in given)
    ann = replace(ann, promoted=np.array([[3, 40]], np.int32))
    tables = {("query", 0): bm25, ("query", 1): ann}
    sources = [{"kind": "bm25"}, {"kind": "ann"}]
    sets = anchor_sets(split, tables)
    assert sets["query"].drawn.tolist() == [0, 1]
    whole = plan_batch(stage(terms={"query": {"negatives": sources}}), 0, 0, 7, sets, tables)
    assert set(whole.queries.tolist()) == {0, 1}


def test_a_new_file_is_read_from_its_beginning():
    """With `restart_queries`, each adoption begins a permutation of its own; without, the epoch goes on."""
    queries, key = np.arange(7), ("queries since an adoption", 3, 0)
    made = stage(refresh={"every_steps": 3, "restart_queries": True})

    def slowly(step: int, adopted_step: int) -> list[int]:
        orders = [random_stream(*key, adopted_step, epoch).permutation(7) for epoch in range(9)]
        endless = np.concatenate(orders)
        return endless[(step - adopted_step) * 4 : (step - adopted_step + 1) * 4].tolist()

    for step, adopted_step in [(0, 0), (1, 0), (2, 0), (3, 3), (4, 3), (9, 6)]:
        drawn, _ = batch_module._queries_of_step(queries, made, step, adopted_step, (3, 0))
        assert drawn.tolist() == slowly(step, adopted_step)
    going_on, _ = batch_module._queries_of_step(queries, stage(), 3, 3, (3, 0))
    assert going_on.tolist() == batch_module._queries_of_step(queries, stage(), 3, 0, (3, 0))[0].tolist()


@pytest.mark.parametrize("repeats", [1, 3])
def test_rolling_draws_take_each_candidate_once_before_one_comes_again(split, repeats):
    """As a slow collator does: a shuffled list for each query, of which the next `n` are taken each time."""
    terms = {"query": {"negatives": [{"kind": "ann", "num_negatives": 3, "rolling": True}]}}
    tables = {("query", 0): TABLES["query", 1]}
    orders = [random_stream("order of candidates", 7, 0, 1, 0, row).permutation(4) for row in range(7)]
    shuffled = [TABLES["query", 1].candidates[row][order].tolist() for row, order in enumerate(orders)]
    taken: Counter[int] = Counter()
    for step in range(12):
        batch = plan(split, step, tables=tables, terms=terms, repeats_per_query=repeats)
        for query, negatives in zip(batch.queries.tolist(), batch.terms["query"].negatives, strict=True):
            assert negatives.tolist() == [shuffled[query][(taken[query] + i) % 4] for i in range(3)]
            taken[query] += 3


def test_a_rolling_source_with_too_few_candidates_gives_all(split):
    table = replace(TABLES["query", 1], candidates=np.array([[20, 21, PADDING, PADDING]] * 7))
    drawn = table.draw_in_turn(np.array([3, 3]), np.array([0, 5]), 3, (7, 0, 1, 0))
    assert [sorted(row) for row in drawn.tolist()] == [[PADDING, 20, 21]] * 2
    assert drawn[:, 2].tolist() == [PADDING] * 2
