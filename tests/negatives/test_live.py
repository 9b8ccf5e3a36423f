"""LTRe's rule about what was found, by hand. Queries: 0 has the positives 7 and 3, 1 has 5, 2 has 9."""

import numpy as np
import pytest

from pyserini_ance.data.collection import Qrels
from pyserini_ance.data.direction import Direction
from pyserini_ance.negatives.live import Live
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.stage import Stage

FOUND = np.array([[1, 2, 4], [6, 5, 0], [8, 4, 9]], np.int32)
ROWS = np.arange(3)


@pytest.fixture
def direction(split_of):
    return Direction(split_of([7, 3], [5], [9]), "query", 10)


def candidates(direction: Direction, no_relevant: str, found=FOUND, rows=ROWS, positives=((3, 7), (5, PADDING), (9, PADDING))) -> list:
    return Live(no_relevant=no_relevant).candidates(found, rows, np.array(positives), direction.relation).tolist()


def test_the_last_gives_way_to_the_positive_of_the_step(direction):
    assert candidates(direction, "replace_last") == [[1, 2, 3], [6, 5, 0], [8, 4, 9]]
    assert candidates(direction, "replace_last", FOUND[:1], ROWS[:1], [[7]]) == [[1, 2, 7]]
    assert candidates(direction, "replace_last", FOUND[:1, :1], ROWS[:1], [[7]]) == [[7]]


def test_all_positives_come_after_the_last(direction):
    assert candidates(direction, "append") == [[1, 2, 4, 7, 3], [6, 5, 0, PADDING, PADDING], [8, 4, 9, PADDING, PADDING]]
    assert candidates(direction, "append", FOUND[1:], ROWS[1:], [[5], [9]]) == FOUND[1:].tolist()


def test_where_the_index_found_fewer_the_positive_still_comes(direction):
    found = np.array([[1, PADDING, PADDING]], np.int32)
    assert candidates(direction, "replace_last", found, ROWS[:1], [[3]]) == [[1, PADDING, 3]]
    assert candidates(direction, "append", found, ROWS[:1], [[3]]) == [[1, PADDING, PADDING, 7, 3]]


def test_graded_judgments_count_from_the_threshold_on(direction):
    qrels = Qrels.of([0, 0], [1, 3], [1, 2], 1, threshold=2)
    relation = Direction(type(direction.split)("train", None, qrels), "query", 10).relation
    found = Live().candidates(FOUND[:1], ROWS[:1], np.array([[3]]), relation)
    assert found.tolist() == [[1, 2, 3]]


def test_settings_that_mean_nothing_are_refused(direction, split_of):
    with pytest.raises(ValueError, match="a `live` source takes all of the top `depth`: set depth=20, and leave out per_query"):
        Live(per_query=20)
    with pytest.raises(ValueError, match="cannot serve a term with `anchor: document`"):
        Live().check_data(Direction(direction.split, "document", 3))


def test_both_towers_do_not_train_on_what_is_found_live():
    stage = {"steps": 1, "batch_queries": 1, "optimizer": {"learning_rate": 1.0}, "terms": {"query": {"negatives": ["live"]}}}
    with pytest.raises(ValueError, match="a `live` source searches document vectors that stay as they are; set train: queries"):
        Stage.model_validate(stage)
    assert Stage.model_validate({**stage, "train": "queries"}).terms["query"].negatives == (Live(),)
