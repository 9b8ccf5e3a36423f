"""Legends: a line for each column that needs one, and none for a column without values."""

import pytest

from pyserini_ance.evaluation.legends import LEGENDS, legend, table_with_legend
from pyserini_ance.evaluation.tables import SECONDS
from pyserini_ance.pipeline.preparation_report import COLUMNS


def test_a_table_has_the_lines_of_its_columns_and_further_ones():
    rows = [{"run": "a", "RR@10": 0.5, "Hole@10": 0.25, "runs": 1}]
    assert table_with_legend(rows, ["run", "RR@10", "Hole@10", "runs", "Overlap@5"], "a: mine") == (
        "| run |  RR@10 | Hole@10 | runs | Overlap@5 |\n"
        "| --- | -----: | ------: | ---: | --------- |\n"
        "| a   | 0.5000 |  0.2500 |    1 | -         |\n"
        "\n"
        "- Hole@k: share of the first k documents that are not judged\n"
        "- a: mine"
    )


def test_columns_of_a_plan_do_not_take_the_lines_of_others():
    own = ["drawn queries", "dev evaluations", "documents to encode"]
    assert legend(["stage", "steps", "epochs", "refreshes", *own]).splitlines() == [
        f"- {LEGENDS[column]}" for column in own
    ]
    assert legend(COLUMNS) == f"- {LEGENDS['median tokens']}"


def test_several_runs_need_a_line_and_measures_do_not():
    assert table_with_legend([{"RR@10": 0.5}], ["RR@10"]).count("\n") == 2
    assert "lowest-highest" in table_with_legend([{"runs": 2}], ["runs"])


@pytest.mark.parametrize("column", [*SECONDS, "dev RR@10 gain", "dl19-rerank nDCG@10", "test EM", "mean ms"])
def test_columns_that_tables_make(column):
    assert legend([column]) in {f"- {text}" for text in LEGENDS.values()}
