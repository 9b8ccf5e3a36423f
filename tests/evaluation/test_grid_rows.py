"""Rows of a grid's tables, and what read_results adds to a run's measures."""

import json
import statistics
from pathlib import Path

import pytest

from pyserini_ance.evaluation.grid_rows import GridRow, columns_of, over_seeds, read_row


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
