import json

import pytest

from pyserini_ance import compare
from pyserini_ance.measures.gains import gains

KEYS = {"recipe": "recipe", "projection": "encoder.projection", "indexes": "test.indexes", "seed": "seed"}


def make_grid(folder, runs: dict[tuple[str, str, str], dict[str, float]]) -> None:
    """By recipe, projection and seed, RR@10 by index."""
    told = []
    for number, ((recipe, projection, seed), by_index) in enumerate(runs.items()):
        (folder / str(number)).mkdir()
        rows = [{"row": "bm25", "RR@10": 0.9}, {"row": "warm", "RR@10": 0.8, "train seconds": 1.0}]
        rows += [{"row": "ance", "RR@10": by_index.pop(""), "train seconds": 1.0}]
        rows += [{"row": f"ance+{index}", "RR@10": value} for index, value in by_index.items()]
        results = {"recipe": recipe, "variant": "x", "measures": ["RR@10"], "rows": rows}
        (folder / str(number) / "measures.json").write_text(json.dumps(results))
        settings = {"recipe": recipe, "projection": projection, "indexes": "[HNSW8]", "seed": seed}
        told.append({"run": str(number), **settings, "status": "finished"})
    (folder / "grid.json").write_text(json.dumps({"recipe": None, "keys": KEYS, "runs": [*told, {**told[0], "run": "later", "status": "waiting"}]}))


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
    rows, columns = gains(grid, "s/bm25")
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


@pytest.fixture
def change(grid):
    """Rewrite the record of each run of the grid by `of`, and say which recipe the grid is of."""

    def change(of, recipe=None):
        record = json.loads((grid / "grid.json").read_text())
        for run in record["runs"]:
            of(run)
        (grid / "grid.json").write_text(json.dumps({**record, "recipe": recipe}))
        return grid

    return change


def test_a_setting_that_one_recipe_alone_has_is_part_of_it(change):
    """As in the grid ltre-against-ance, whose recipes have stages of their own."""

    def of(run):
        del run["projection"]
        if run["recipe"] == "s/ance":
            run["projection"] = "64"

    rows, columns = gains(change(of), "s/bm25")
    assert columns[:3] == ["index", "recipe", "runs"] and [(row["recipe"], row["runs"]) for row in rows[:2]] == [("s/bm25", 3), ("s/ance", 2)]
    assert rows[1]["RR@10 gain"] == f"{((0.63 + 0.15) / 2 / ((0.40 + 0.44 + 0.20) / 3) - 1) * 100:+.1f} %"


def test_runs_of_a_recipe_that_lack_a_setting_stand_apart(change):
    def of(run):
        if run["projection"] == "null":
            del run["projection"]

    rows, columns = gains(change(of), "s/bm25")
    assert columns[0] == "projection"
    assert [(row["projection"], row["recipe"], row.get("RR@10 gain")) for row in rows if row["index"] == "exact"] == [
        (None, "s/bm25", None), (None, "s/ance", "+50.0 %"), ("64", "s/bm25", None), ("64", "s/ance", "-25.0 %"),
    ]  # fmt: skip


def test_a_combination_that_names_no_recipe_is_of_the_grids(change):
    def of(run):
        if run["recipe"] == "s/bm25":
            del run["recipe"]

    assert gains(change(of, "s/bm25"), "s/bm25")[0][1]["RR@10 gain"] == "+50.0 %"


def test_the_command(grid, capsys):
    compare.main([str(grid), "--gains", "s/bm25"])
    assert capsys.readouterr().out.splitlines()[3].split("|")[3:7] == [" s/ance ", "    1 ", " 0.630               ", " +50.0 %    "]


def test_a_baseline_that_is_no_recipe_and_a_run_that_is_no_grid_are_refused(grid):
    with pytest.raises(ValueError, match=r"--gains 's/bm2' is no recipe that has finished in .* \(did you mean 's/bm25'\?\); those: s/bm25, s/ance"):
        gains(grid, "s/bm2")
    with pytest.raises(ValueError, match="0 is no grid's folder"):
        gains(grid / "0", "s/bm25")
