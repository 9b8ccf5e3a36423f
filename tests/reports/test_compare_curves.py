import json

import pandas as pd
import pytest

from pyserini_ance.reports.compare import improvements, mean_curves, time_to_target
from pyserini_ance.reports.plots import plot_curves
from pyserini_ance.reports.run_history import dev_curve

KEYS = {
    "recipe": "recipe",
    "projection": "encoder.projection",
    "indexes": "final_evaluation.indexes",
    "seed": "seed",
}


def make_grid(folder, runs: dict[tuple[str, str, str], dict[str, float]]) -> None:
    """By recipe, projection and seed, RR@10 by index."""
    told = []
    for number, ((recipe, projection, seed), by_index) in enumerate(runs.items()):
        (folder / str(number)).mkdir()
        rows = [{"row": "bm25", "RR@10": 0.9}, {"row": "warm", "RR@10": 0.8, "train seconds": 1.0}]
        rows += [{"row": "ance", "RR@10": by_index.pop(""), "train seconds": 1.0}]
        rows += [{"row": f"ance+{index}", "RR@10": value} for index, value in by_index.items()]
        results = {"recipe": recipe, "config_hash": "x", "measures": ["RR@10"], "rows": rows}
        (folder / str(number) / "measures.json").write_text(json.dumps(results))
        settings = {"recipe": recipe, "projection": projection, "indexes": "[HNSW8]", "seed": seed}
        told.append({"run": str(number), **settings, "status": "finished"})
    waiting = {**told[0], "run": "later", "status": "waiting"}
    record = {"recipe": None, "keys": KEYS, "runs": [*told, waiting]}
    (folder / "grid.json").write_text(json.dumps(record))


@pytest.fixture
def grid(tmp_path):
    make_grid(tmp_path, {
        ("s/bm25", "null", "1"): {"": 0.40, "HNSW8": 0.30},
        ("s/bm25", "null", "2"): {"": 0.44, "HNSW8": 0.30},
        ("s/ance", "null", "1"): {"": 0.63, "HNSW8": 0.36},
        ("s/bm25", "64", "1"): {"": 0.20, "HNSW8": 0.10},
        ("s/ance", "64", "1"): {"": 0.15, "HNSW8": 0.20},
    })  # fmt: skip
    return tmp_path


def test_by_setting_and_index_with_means_over_seeds(grid):
    rows, columns = improvements(grid, "s/bm25")
    assert columns == ["projection", "index", "recipe", "runs", "RR@10", "RR@10 gain"]
    assert [tuple(row.get(column) for column in columns) for row in rows] == [
        ("null", "exact", "s/bm25", 2, "0.420 (0.400-0.440)", None),
        ("null", "exact", "s/ance", 1, "0.630", "+50.0 %"),
        ("null", "HNSW8", "s/bm25", 2, "0.300", None),
        ("null", "HNSW8", "s/ance", 1, "0.360", "+20.0 %"),
        ("64", "exact", "s/bm25", 1, "0.200", None),
        ("64", "exact", "s/ance", 1, "0.150", "-25.0 %"),
        ("64", "HNSW8", "s/bm25", 1, "0.100", None),
        ("64", "HNSW8", "s/ance", 1, "0.200", "+100.0 %"),
    ]


def test_combinations_without_a_recipe_use_the_grids(grid):
    expected, record = improvements(grid, "s/bm25"), json.loads((grid / "grid.json").read_text())
    record["recipe"] = "s/bm25"
    for run in record["runs"]:
        if run["recipe"] == "s/bm25":
            del run["recipe"]
    (grid / "grid.json").write_text(json.dumps(record))
    assert improvements(grid, "s/bm25") == expected


def test_a_setting_that_one_recipe_lacks_is_no_column(grid):
    """As in the grid ltre-against-ance."""
    record = json.loads((grid / "grid.json").read_text())
    for run in record["runs"]:
        run["projection"] = "64"
        if run["recipe"] == "s/bm25":
            del run["projection"]
    (grid / "grid.json").write_text(json.dumps(record))
    rows, columns = improvements(grid, "s/bm25")
    exact = [(row["recipe"], row.get("RR@10 gain")) for row in rows if row["index"] == "exact"]
    gain = f"{((0.63 + 0.15) / 2 / ((0.40 + 0.44 + 0.20) / 3) - 1) * 100:+.1f} %"
    assert columns[0] == "index" and exact == [("s/bm25", None), ("s/ance", gain)]


def test_a_grid_that_has_no_such_table_is_refused(grid):
    with pytest.raises(
        ValueError, match=r"'s/bm2' is not a recipe that has finished in .*\(did you mean 's/bm25'"
    ):
        improvements(grid, "s/bm2")
    with pytest.raises(ValueError, match="0 is not the folder of a grid"):
        improvements(grid / "0", "s/bm25")
    file = grid / "1" / "measures.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"measures": ["nDCG@10"]}))
    with pytest.raises(ValueError, match="compare runs with the same measures"):
        improvements(grid, "s/bm25")


RECORDS = [
    {"event": "refresh", "stage": "a", "step": 0, "seconds": 5.0},
    {"event": "step", "stage": "a", "step": 0, "seconds": 1.0},
    {"event": "step", "stage": "a", "step": 1, "seconds": 1.5},
    {"event": "refresh", "stage": "a", "step": 2, "seconds": 4.25, "dev_seconds": 4.0},
    {"event": "step", "stage": "a", "step": 2, "seconds": 1.0},
    {"event": "dev", "stage": "a", "step": 3, "checkpoint_step": 2, "measure": "RR@10", "value": 0.4},
    {"event": "step", "stage": "a", "step": 3, "seconds": 1.0},
    {"event": "refresh", "stage": "a", "step": 4, "seconds": 3.0},
    {"event": "dev", "stage": "a", "step": 4, "checkpoint_step": 4, "measure": "RR@10", "value": 0.5},
]


def write(path, records, factor=1.0):
    scaled = [{**r, **{key: r[key] * factor for key in r if "seconds" in key}} for r in records]
    path.mkdir(exist_ok=True)
    (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in scaled))
    return path


def points(curve: pd.DataFrame) -> list[tuple]:
    return list(curve[["stage", "step", "steps", "seconds", "value"]].itertuples(index=False, name=None))


def test_a_checkpoint_counts_from_when_training_had_reached_it():
    """The training of a cross-encoder and documents that are encoded once count, too."""
    found = [(p["stage"], p["step"], p["steps"], p["seconds"], p["value"]) for p in dev_curve(RECORDS)]
    assert found == [("a", 2, 2, 7.5, 0.4), ("a", 4, 4, 9.75, 0.5)]
    teacher = {"event": "teacher", "teacher": "b", "seconds": {"mine": 2.0, "train": 3.0}}
    frozen = {"event": "documents", "stage": "a", "step": 0, "parts": {"encode": 20.0, "build": 0.5}}
    for more, seconds in ((teacher, 5.0), (frozen, 20.5)):
        assert [p["seconds"] for p in dev_curve([more, *RECORDS])] == [7.5 + seconds, 9.75 + seconds]


def test_runs_of_one_label_are_averaged_and_drawn(tmp_path):
    written = [
        write(tmp_path / str(number), RECORDS, factor) for number, factor in enumerate((1.0, 3.0, 1.0))
    ]
    curves = mean_curves(list(zip(("one", "one", "two"), written, strict=True)))
    assert points(curves["one"]) == [("a", 2, 2, 15.0, 0.4), ("a", 4, 4, 19.5, 0.5)]
    assert points(curves["two"]) == [("a", 2, 2, 7.5, 0.4), ("a", 4, 4, 9.75, 0.5)]
    plot_curves(curves, tmp_path / "curve.svg")
    text = (tmp_path / "curve.svg").read_text()
    assert all(f"<!-- {label} -->" in text for label in ("one", "two", "steps of all stages"))


def test_the_mean_of_runs_of_different_length_is_over_common_steps(tmp_path, caplog):
    """The first stage of one run ends before its second score, by `patience`; both have the next stage."""
    after = [{"event": "step", "stage": "b", "step": 0, "seconds": 2.0}]
    dev = {"event": "dev", "stage": "b", "step": 1, "checkpoint_step": 1}
    after.append({**dev, "measure": "RR@10", "value": 0.6})
    runs = [("one", write(tmp_path / name, [*RECORDS[:last], *after])) for name, last in (("1", 6), ("2", 9))]
    assert points(mean_curves(runs)["one"]) == [
        ("a", 2, 2, 7.5, 0.4), ("b", 1, 4.5, (10.75 + 14.75) / 2, 0.6)
    ]  # fmt: skip
    assert caplog.messages[0].startswith(
        "one: its runs have 2, 3 dev scores, 2 of them at steps that all have"
    )
    moved = [{**record, "checkpoint_step": record.get("checkpoint_step", 0) + 1} for record in RECORDS]
    with pytest.raises(ValueError, match="one: its runs have 2, 2 dev scores, 0 of them at steps that all"):
        mean_curves([("one", write(tmp_path / "1", RECORDS)), ("one", write(tmp_path / "2", moved))])


def test_the_target_is_what_all_reach_or_the_given_one(tmp_path):
    key = {"stage": "b", "measure": "RR@10"}
    fast = [{**key, "step": 1, "steps": 1, "seconds": 3.0, "value": 0.6}]
    fast += [{**key, "step": 2, "steps": 2, "seconds": 4.0, "value": 0.7}]
    curves = {"slow": mean_curves([("slow", write(tmp_path / "1", RECORDS, 2.0))])["slow"]}
    curves["fast"] = pd.DataFrame(fast)
    rows, columns = time_to_target(curves)
    assert columns == ["recipe", "best dev RR@10", "its seconds", "to 0.5000 seconds", "after"]
    assert [list(row.values()) for row in rows] == [
        ["slow", 0.5, 19.5, 19.5, "a, step 4"],
        ["fast", 0.7, 4.0, 3.0, "b, step 1"],
    ]
    late = time_to_target(curves, 0.7)[0]
    assert [list(row.values())[3:] for row in late] == [[None, None], [4.0, "b, step 2"]]
    with pytest.raises(ValueError, match="slow: dev was not evaluated; set `evaluate:` in the recipe"):
        time_to_target({**curves, "slow": curves["slow"][:0]})
