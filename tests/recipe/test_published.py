"""Published figures beside the recipes: rows that later tables can be compared with."""

import pytest
import yaml

from pyserini_ance.recipe.find import SHIPPED
from pyserini_ance.recipe.measure import parse

SETS = sorted(path.parent.name for path in SHIPPED.glob("*/_published.yaml"))
SPLITS = {"dev", "test", "eval", "dl19", "dl19-rerank", "nq-test", "trivia-test"}


def read(name: str) -> dict:
    return yaml.safe_load((SHIPPED / name / "_published.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", SETS)
def test_rows_are_measures_of_splits_from_sources(name):
    published = read(name)
    for row in published["rows"]:
        splits = {key: row[key] for key in row if key not in ("method", "as", "source", "table")}
        assert row["method"] and row["as"] and row["source"] in published["sources"], row
        assert splits and splits.keys() <= SPLITS, row
        for measures in splits.values():
            assert [str(measure) for measure in parse(measures)] == list(measures), row
            assert all(0 < value < 1 for value in measures.values()), row


@pytest.mark.parametrize("name", SETS)
def test_a_source_gives_one_row_a_model(name):
    rows = [(row["source"], row.get("table"), row["as"]) for row in read(name)["rows"]]
    assert len(rows) == len(set(rows))


def test_dance_gains_over_ance_what_the_paper_says():
    """Section 5.1: "further improves ANCE (FirstP) with 0.7% MRR@100 score"."""
    rows = {row["as"]: row for row in read("msmarco-doc")["rows"] if row["source"] == "dance" and row["table"] == 1}
    assert rows["DANCE (FirstP)"]["eval"]["RR@100"] - rows["ANCE (FirstP)"]["eval"]["RR@100"] == pytest.approx(0.007)


def test_models_of_several_sets_have_the_same_figures_beside_those_of_one():
    multi = {(row["source"], row["as"]): row for row in read("openqa-multi")["rows"]}
    for name in ("nq", "trivia"):
        of_set = {(row["source"], row["as"]): row["test"] for row in read({"trivia": "triviaqa"}.get(name, name))["rows"]}
        assert {key: row[f"{name}-test"] for key, row in multi.items()} == {key: of_set[key] for key in multi}
