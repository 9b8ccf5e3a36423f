"""`top_k: auto`: the rule, and where its number is used and recorded."""

import json

import numpy as np
import pytest
from helpers.stage_fixture import Training

from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.lookahead import Lookahead
from pyserini_ance.negatives.mined import auto_top_k
from pyserini_ance.pipeline.plan import plan


@pytest.mark.parametrize(
    ("candidates", "top_k"),
    [
        (1, 20),
        (4_987, 20),  # the demo
        (8_800, 20),
        (15_809, 24),  # MedQuAD
        (70_400, 40),  # (70,400 / 8.8 million)^(1/3) is exactly 0.2
        (1_100_000, 100),
        (8_841_823, 200),  # MS MARCO passages
        (21_015_324, 200),  # Wikipedia of DPR
    ],
)
def test_the_rule(candidates, top_k):
    assert auto_top_k(candidates) == top_k


@pytest.mark.parametrize("kind", [Ann, Lookahead])
def test_auto_mines_the_table_of_its_number(kind, split_of, snapshot_of):
    """The number of the searched side: 60 documents for a query, 2 queries for a document."""
    rng = np.random.default_rng(0)
    snapshot = snapshot_of(split_of([0], [1]), rng.normal(size=(2, 4)), rng.normal(size=(60, 4)))
    for side, least in (("query", 20), ("document", 1)):
        anchor_set = snapshot.anchor_set(side)
        automatic, given = (kind(top_k=top_k).mine(snapshot, anchor_set) for top_k in ("auto", 20))
        assert np.array_equal(automatic.candidates, given.candidates) and automatic.counts.min() == least


def test_the_number_is_in_the_plan_the_report_and_the_log(small_recipe, tmp_path, caplog):
    new = {"kind": "mix", "sources": [{"kind": "ann", "top_k": "auto"}, {"kind": "ann", "top_k": 3}]}
    terms = {"query": {"negatives": [{"kind": "ann", "top_k": "auto"}, new, {"kind": "ann", "top_k": 3}]}}
    made = Training(small_recipe, tmp_path, terms, steps=1, refresh={"every_steps": 1})
    with caplog.at_level("DEBUG"):
        made.train()
    [record] = made.metrics("generation")
    assert [table.get("top_k") for table in record["tables"].values()] == [20, 20, None]
    report = json.loads((made.run.generation("a", 0) / "report.json").read_text())
    assert report["tables"]["query.0"]["top_k"] == 20
    assert "query.0: top_k 20, 300 candidates" in caplog.text and "query.2: 45 candidates" in caplog.text
    lines = [line for line in plan(made.recipe).splitlines() if "auto" in line]
    assert lines == [
        f"stages.a.terms.query.negatives.{n}: top_k auto is 20, for 30 documents" for n in (0, 1)
    ]
