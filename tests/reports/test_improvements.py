import json

import pytest

from pyserini_ance.reports.compare import improvements

KEYS = {"projection": "encoder.projection", "indexes": "final_evaluation.indexes"}
KEYS |= {"recipe": "recipe", "seed": "seed"}
# By recipe, projection and seed, RR@10 by index.
RUNS = {
    ("s/bm25", "null", "1"): {"": 0.40, "HNSW8": 0.30},
    ("s/bm25", "null", "2"): {"": 0.44, "HNSW8": 0.30},
    ("s/ance", "null", "1"): {"": 0.63, "HNSW8": 0.36},
    ("s/bm25", "64", "1"): {"": 0.20, "HNSW8": 0.10},
    ("s/ance", "64", "1"): {"": 0.15, "HNSW8": 0.20},
}


@pytest.fixture
def grid(tmp_path):
    told = []
    for number, ((recipe, projection, seed), by_index) in enumerate(RUNS.items()):
        (tmp_path / str(number)).mkdir()
        rows = [{"row": "bm25", "RR@10": 0.9}, {"row": "warm", "RR@10": 0.8, "train seconds": 1.0}]
        rows += [{"row": "ance", "RR@10": by_index[""], "train seconds": 1.0}]
        rows += [{"row": f"ance+{index}", "RR@10": value} for index, value in by_index.items() if index]
        results = {"recipe": recipe, "config_hash": "x", "measures": ["RR@10"], "rows": rows}
        (tmp_path / str(number) / "measures.json").write_text(json.dumps(results))
        settings = {"recipe": recipe, "projection": projection, "indexes": "[HNSW8]", "seed": seed}
        told.append({"run": str(number), **settings, "status": "finished"})
    waiting = {**told[0], "run": "later", "status": "waiting"}
    (tmp_path / "grid.json").write_text(json.dumps({"recipe": None, "keys": KEYS, "runs": [*told, waiting]}))
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
    """As in the grid ltre-against-ance, with one value of its setting, and with two."""
    record = json.loads((grid / "grid.json").read_text())
    for run in record["runs"]:
        if run["recipe"] == "s/bm25":
            del run["projection"]
    (grid / "grid.json").write_text(json.dumps(record))
    base = (0.40 + 0.44 + 0.20) / 3
    found = [row.get("RR@10 gain") for row in improvements(grid, "s/bm25")[0] if row["index"] == "exact"]
    assert set(found) == {None, f"{(0.63 / base - 1) * 100:+.1f} %", f"{(0.15 / base - 1) * 100:+.1f} %"}
    for run in record["runs"]:
        if run["recipe"] == "s/ance":
            run["projection"] = "64"
    (grid / "grid.json").write_text(json.dumps(record))
    rows, columns = improvements(grid, "s/bm25")
    exact = [(row["recipe"], row.get("RR@10 gain")) for row in rows if row["index"] == "exact"]
    gain = f"{((0.63 + 0.15) / 2 / base - 1) * 100:+.1f} %"
    assert columns[0] == "index" and exact == [("s/bm25", None), ("s/ance", gain)]


def test_a_grid_that_has_no_such_table_is_refused(grid):
    with pytest.raises(ValueError, match=r"'s/bm2' is not a recipe that has finished in .*mean 's/bm25'"):
        improvements(grid, "s/bm2")
    with pytest.raises(ValueError, match="0 is not the folder of a grid"):
        improvements(grid / "0", "s/bm25")
    file = grid / "1" / "measures.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"measures": ["nDCG@10"]}))
    with pytest.raises(ValueError, match="compare runs with the same measures"):
        improvements(grid, "s/bm25")
