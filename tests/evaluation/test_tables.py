import json

import pytest

from pyserini_ance.evaluation.tables import LEGENDS, SECONDS, legend, read_results, table, table_with_legend
from pyserini_ance.pipeline.preparation_report import COLUMNS


def test_columns_align_and_are_markdown():
    rows = [
        {"ranking": "BM25", "nDCG@10": 0.41237, "queries": 730, "seconds": 3.14159},
        {"ranking": "ance|2", "nDCG@10": 1.0, "queries": 5, "seconds": 312.0},
        {"ranking": "untrained"},
    ]
    assert table(rows, ["ranking", "nDCG@10", "queries", "seconds"]) == (
        "| ranking   | nDCG@10 | queries | seconds |\n"
        "| --------- | ------: | ------: | ------: |\n"
        "| BM25      |  0.4124 |     730 |     3.1 |\n"
        "| ance\\|2   |  1.0000 |       5 |   312.0 |\n"
        "| untrained |       - |       - |       - |"
    )


def test_an_unfinished_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="not a finished run"):
        read_results(tmp_path)
    (tmp_path / "measures.json").write_text('{"recipe": "a", ')
    with pytest.raises(RuntimeError, match=f"{tmp_path}/measures.json was damaged"):
        read_results(tmp_path)


def test_commits_are_recorded_at_start_and_at_each_resume(tmp_path):
    (tmp_path / "measures.json").write_text(json.dumps({"rows": []}))
    assert read_results(tmp_path) == {"run": str(tmp_path), "rows": [], "commits": [], "data": None}
    first, second = ({"commit": {"hash": digit * 40, "changed": digit == "2"}} for digit in "12")
    (tmp_path / "environment.json").write_text(json.dumps(first))
    environments = (first, second, {"commit": None}, {})  # the last of an older version
    resumed = [{"event": "resume", "environment": made} for made in environments]
    (tmp_path / "decisions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in resumed))
    assert read_results(tmp_path)["commits"] == ["1111111", "2222222+"]


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
    columns = ["stage", "steps", "epochs", "refreshes", *own]
    assert legend(columns).splitlines() == [f"- {LEGENDS[column]}" for column in own]
    assert legend(COLUMNS) == f"- {LEGENDS['median tokens']}"
    assert table_with_legend([{"RR@10": 0.5}], ["RR@10"]).count("\n") == 2
    assert "lowest-highest" in table_with_legend([{"runs": 2}], ["runs"])


@pytest.mark.parametrize("column", [*SECONDS, "dev RR@10 gain", "dl19-rerank nDCG@10", "test EM", "mean ms"])
def test_columns_that_tables_make(column):
    assert legend([column]) in {f"- {text}" for text in LEGENDS.values()}
