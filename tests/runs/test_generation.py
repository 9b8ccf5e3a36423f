import numpy as np
import pytest

from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.models import Stage
from pyserini_ance.runs.generation import mined_sources, open_tables, publish_tables

ABOUT = {"stage": "ance", "step": 10, "weights": "a" * 64, "collection": "b" * 64}


def table(first: int) -> NegativeTable:
    candidates = np.arange(first, first + 6, dtype=np.int32).reshape(2, 3)
    return NegativeTable("query", "document", np.arange(2, dtype=np.int32), candidates, candidates.astype(np.float32), "ann")


def test_tables_come_back_under_their_keys(tmp_path):
    tables = {("query", 0): table(0), ("query", 10): table(10), ("other.term", 1): table(20)}
    publish_tables(tmp_path / "g", tables, ABOUT)
    opened = open_tables(tmp_path / "g", ABOUT["weights"], ABOUT["collection"])
    assert {key: t.candidates.tolist() for key, t in opened.items()} == {key: t.candidates.tolist() for key, t in tables.items()}


def test_a_complete_generation_stays_and_another_is_refused(tmp_path):
    publish_tables(tmp_path / "g", {("query", 0): table(0)}, ABOUT)
    publish_tables(tmp_path / "g", {("query", 0): table(0)}, ABOUT)
    with pytest.raises(RuntimeError, match="was mined with other weights or data"):
        publish_tables(tmp_path / "g", {("query", 0): table(0)}, {**ABOUT, "weights": "c" * 64})


def test_tables_of_other_weights_or_data_are_not_adopted(tmp_path):
    publish_tables(tmp_path / "g", {("query", 0): table(0)}, ABOUT)
    with pytest.raises(RuntimeError, match="mined with weights aaaaaaaaaaaa, expected cccccccccccc"):
        open_tables(tmp_path / "g", "c" * 64, ABOUT["collection"])
    with pytest.raises(RuntimeError, match="mined from another collection"):
        open_tables(tmp_path / "g", ABOUT["weights"], "d" * 64)


def test_mined_sources_have_a_key_by_term_and_position():
    terms = {
        "one": {"negatives": [{"kind": "random"}, {"kind": "ann"}]},
        "two": {"negatives": [{"kind": "run"}]},
        "three": {"pool": "step"},
    }
    settings = {"steps": 1, "batch_queries": 1, "optimizer": {"learning_rate": 1.0}, "refresh": {"every_steps": 1}}
    stage = Stage.model_validate({**settings, "terms": terms})
    assert {key: source.kind for key, source in mined_sources(stage).items()} == {("one", 1): "ann", ("two", 0): "run"}
    assert set(mined_sources(stage, refreshed_only=True)) == {("one", 1)}
