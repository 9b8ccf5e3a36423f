import json
import statistics
from pathlib import Path

import pytest

from pyserini_ance.evaluation.grid_rows import GridRow, columns_of, over_seeds, read_row
from pyserini_ance.evaluation.legends import LEGENDS, legend, table_with_legend
from pyserini_ance.evaluation.tables import SECONDS, read_results, table
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
    assert read_results(tmp_path) == {"run": str(tmp_path), "rows": [], "commits": []}
    first, second = (
        {"commit": {"hash": digit * 40, "changed": changed}} for digit, changed in (("1", False), ("2", True))
    )
    (tmp_path / "environment.json").write_text(json.dumps(first))
    resumed = [
        {"event": "resume", "environment": made} for made in (first, second, {"commit": None}, {})
    ]  # the last of an older version
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


def row(seed: int, rate: str, value: float, dev: float | None = None, status: str = "finished") -> GridRow:
    return GridRow(
        Path("r"),
        {"rate": rate, "seed": str(seed)},
        status,
        {"RR@10": value} if status == "finished" else {},
        dev,
        10.0 * seed,
    )


def test_a_row_is_the_last_stage_with_all_seconds_and_its_best_dev_measure(tmp_path):
    rows = [
        {"row": "untrained", "RR@10": 0.1, "test seconds": 9.0},
        {"row": "start-ance", "RR@10": 0.2, "test seconds": 9.0},
        {"row": "warm", "RR@10": 0.3, "train seconds": 1.0, "refresh seconds": 0.5, "test seconds": 2.0},
        {"row": "ance", "RR@10": 0.4, "train seconds": 4.0, "refresh seconds": 2.0, "test seconds": 1.0},
    ]
    (tmp_path / "measures.json").write_text(json.dumps({"measures": ["RR@10"], "rows": rows}))
    best = [
        {"event": "best", "stage": stage, "step": 5, "checkpoint_step": 5, "value": value}
        for stage, value in (("warm", 0.9), ("ance", 0.5), ("ance", 0.6))
    ]
    (tmp_path / "decisions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in best))
    assert read_row(tmp_path, {"a": "1"}).cells() == {
        "a": "1",
        "status": "finished",
        "RR@10": 0.4,
        "dev best": 0.6,
        "seconds": 10.5,
    }


def test_how_runs_ended_is_a_column_only_when_some_have_not_finished():
    columns = ["rate", "seed", "RR@10", "dev best", "seconds"]
    assert columns_of([row(1, "x", 0.5)]) == columns
    rows = [row(1, "x", 0.5), row(2, "x", 0.5, status="failed")]
    assert columns_of(rows) == [*columns[:2], "status", *columns[2:]]
    assert over_seeds(rows[1:], "seed") == ([], [])


def test_mean_and_deviation_over_seeds_of_finished_runs():
    rows = [row(1, "x", 0.5, 0.7), row(2, "x", 0.6, 0.9), row(3, "x", 0.0, status="failed"), row(1, "y", 0.4)]
    means, columns = over_seeds(rows, "seed")
    assert columns == ["rate", "seeds", "RR@10 mean", "RR@10 sd", "dev best mean", "dev best sd", "seconds"]
    x, y = means
    assert (x["rate"], x["seeds"], x["seconds"]) == ("x", 2, 15.0)
    assert x["RR@10 mean"] == pytest.approx(0.55) and x["dev best mean"] == pytest.approx(0.8)
    assert x["RR@10 sd"] == pytest.approx(statistics.stdev([0.5, 0.6]))
    none = {"RR@10 sd": None, "dev best mean": None, "dev best sd": None}
    assert y == {"rate": "y", "seeds": 1, "RR@10 mean": 0.4, "seconds": 10.0, **none}
