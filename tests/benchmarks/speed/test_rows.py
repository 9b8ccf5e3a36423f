"""What follows a search, as a refresh does it and in plain Python: equal rows. No test compares times."""

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.speed import rows
from pyserini_ance.pyserini_bridge import java

pytestmark = pytest.mark.fast


class Turns:
    """Rounds without another process."""

    def __init__(self, count: int):
        self.left, self.output, self.outputs = count, None, []

    def begin(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def end(self) -> None:
        self.outputs.append(self.output)

    def __iter__(self):
        while self.begin():
            yield
            self.end()


@pytest.fixture
def found(tmp_path):
    rows.write_found(tmp_path, documents=500, queries=20, k=80)
    return [np.load(tmp_path / name) for name in (rows.FOUND, rows.SCORES, rows.POSITIVES)]


def test_what_is_found_is_in_the_order_of_scores_and_has_the_positives(found):
    documents, scores, positives = found
    assert all(len(set(line)) == 80 for line in documents.tolist())
    assert (np.diff(scores, axis=1) <= 0).all()
    for line, of_query in zip(documents.tolist(), positives.tolist(), strict=True):
        known = [row for row in of_query if row >= 0]
        assert known and len(set(known)) == len(known) and set(known) <= set(line)
    assert {int((line >= 0).sum()) for line in positives} > {1}


@pytest.mark.parametrize("top_k", [30, 80])
def test_plain_python_keeps_and_draws_the_same_rows(found, tmp_path, top_k, monkeypatch):
    result = namedtuple("DenseSearchResult", ["docid", "score"])
    pyserini = SimpleNamespace(DenseSearchResult=result)
    monkeypatch.setattr(java, "import_pyserini", lambda _: pyserini)
    own, stock = Turns(1), Turns(2)
    rows.ours(own, tmp_path, documents=500, top_k=top_k, num_negatives=6)
    rows.stock(stock, tmp_path, documents=500, top_k=top_k, num_negatives=6)
    assert own.output.tolist() == stock.outputs[1].tolist()
    kept, drawn = own.output[:, :top_k], own.output[:, top_k:]
    assert (top_k == 80) == (kept[:, -1] == -1).any()
    positives = found[2].tolist()
    for of_query, line, some in zip(positives, kept.tolist(), drawn.tolist(), strict=True):
        assert set(some) <= set(line) and len(set(some)) == 6
        assert not {row for row in of_query if row >= 0} & set(line)


@pytest.mark.parametrize("source", ["ann", "random"])
def test_steps_are_planned_with_a_new_order_only_in_a_new_epoch(tmp_path, source, monkeypatch):
    """300 queries are three epochs of the 12 steps of 64; each epoch's order is made once."""
    from pyserini_ance.random_streams import random_stream
    from pyserini_ance.trainer import batch

    monkeypatch.setattr(rows, "PLANNED_STEPS", 6)
    monkeypatch.setattr(rows, "PLANNED_TOP_K", 5)
    orders = []

    def counted(purpose, *key):
        orders.extend([key] if purpose == "queries" else [])
        return random_stream(purpose, *key)

    monkeypatch.setattr(batch, "random_stream", counted)
    batch._epoch_order.cache_clear()
    turns = Turns(2)
    rows.draw_steps(turns, tmp_path, queries=300, documents=40, source=source)
    assert len(orders) == len(set(orders)) == 3
    assert all(64 < len(output) <= 64 + 40 for output in turns.outputs)
