import json
import statistics
from pathlib import Path

import pytest

from pyserini_ance.commands import compare
from pyserini_ance.evaluation.grid_rows import GridRow, columns_of, over_seeds, read_row
from pyserini_ance.reports.grid_tables import improvements, runs_in

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
    (folder / "grid.json").write_text(
        json.dumps(
            {"recipe": None, "keys": KEYS, "runs": [*told, {**told[0], "run": "later", "status": "waiting"}]}
        )
    )


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


def test_a_setting_of_one_recipe_belongs_to_the_recipe(change):
    """As in the grid ltre-against-ance, whose recipes have stages of their own."""

    def of(run):
        del run["projection"]
        if run["recipe"] == "s/ance":
            run["projection"] = "64"

    rows, columns = improvements(change(of), "s/bm25")
    assert columns[:3] == ["index", "recipe", "runs"] and [
        (row["recipe"], row["runs"]) for row in rows[:2]
    ] == [("s/bm25", 3), ("s/ance", 2)]
    assert rows[1]["RR@10 gain"] == f"{((0.63 + 0.15) / 2 / ((0.40 + 0.44 + 0.20) / 3) - 1) * 100:+.1f} %"


def test_runs_without_a_setting_have_separate_rows(change):
    def of(run):
        if run["projection"] == "null":
            del run["projection"]

    rows, columns = improvements(change(of), "s/bm25")
    assert columns[0] == "projection"
    exact = [row for row in rows if row["index"] == "exact"]
    assert [(row["projection"], row["recipe"], row.get("RR@10 gain")) for row in exact] == [
        (None, "s/bm25", None),
        (None, "s/ance", "+50.0 %"),
        ("64", "s/bm25", None),
        ("64", "s/ance", "-25.0 %"),
    ]


def test_a_combination_without_a_recipe_uses_the_grids(change):
    def of(run):
        if run["recipe"] == "s/bm25":
            del run["recipe"]

    assert improvements(change(of, "s/bm25"), "s/bm25")[0][1]["RR@10 gain"] == "+50.0 %"


def test_runs_with_different_measures_are_refused(grid):
    file = grid / "1" / "measures.json"
    results = json.loads(file.read_text())
    file.write_text(json.dumps(results | {"measures": ["nDCG@10"]}))
    with pytest.raises(ValueError, match="compare runs with the same measures"):
        improvements(grid, "s/bm25")


def test_the_command(grid, capsys):
    compare.main([str(grid), "--improvement-over", "s/bm25"])
    assert capsys.readouterr().out.splitlines()[3].split("|")[3:7] == [
        " s/ance ",
        "    1 ",
        " 0.630               ",
        " +50.0 %    ",
    ]


def test_unknown_baselines_and_folders_without_a_grid_are_rejected(grid):
    with pytest.raises(
        ValueError,
        match=r"--improvement-over 's/bm2' is not a recipe that has finished in .* "
        r"\(did you mean 's/bm25'\?\); finished recipes: s/bm25, s/ance",
    ):
        improvements(grid, "s/bm2")
    with pytest.raises(ValueError, match="0 is not the folder of a grid"):
        improvements(grid / "0", "s/bm25")


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
    assert columns_of([row(1, "x", 0.5)]) == ["rate", "seed", "RR@10", "dev best", "seconds"]
    assert columns_of([row(1, "x", 0.5), row(2, "x", 0.5, status="failed")]) == [
        "rate",
        "seed",
        "status",
        "RR@10",
        "dev best",
        "seconds",
    ]


def test_mean_and_deviation_over_seeds_of_finished_runs():
    rows = [row(1, "x", 0.5, 0.7), row(2, "x", 0.6, 0.9), row(3, "x", 0.0, status="failed"), row(1, "y", 0.4)]
    means, columns = over_seeds(rows, "seed")
    assert columns == ["rate", "seeds", "RR@10 mean", "RR@10 sd", "dev best mean", "dev best sd", "seconds"]
    x, y = means
    assert (x["rate"], x["seeds"], x["seconds"]) == ("x", 2, 15.0)
    assert x["RR@10 mean"] == pytest.approx(0.55) and x["RR@10 sd"] == pytest.approx(
        statistics.stdev([0.5, 0.6])
    )
    assert x["dev best mean"] == pytest.approx(0.8)
    assert y == {
        "rate": "y",
        "seeds": 1,
        "RR@10 mean": 0.4,
        "RR@10 sd": None,
        "dev best mean": None,
        "dev best sd": None,
        "seconds": 10.0,
    }


def test_no_finished_run_has_no_mean():
    assert over_seeds([row(1, "x", 0.5, status="failed")], "seed") == ([], [])


def test_a_grids_folder_selects_its_finished_runs(tmp_path, caplog):
    assert runs_in([tmp_path]) == [tmp_path]
    runs = [
        {"run": name, "status": status}
        for name, status in (("a", "finished"), ("b", "failed"), ("c", "waiting"))
    ]
    (tmp_path / "grid.json").write_text(json.dumps({"runs": runs}))
    assert runs_in([tmp_path, tmp_path / "b"]) == [tmp_path / "a", tmp_path / "b"]
    assert caplog.messages == [f"{tmp_path}: 1 of 3 runs have finished; the others are skipped"]
    (tmp_path / "grid.json").write_text(json.dumps({"runs": runs[1:]}))
    with pytest.raises(ValueError, match="no run of this grid has finished yet"):
        runs_in([tmp_path])


def test_a_shell_names_files_too(tmp_path, caplog):
    """As `runs/grid/*` does: the tables of the grid, without a word, and other files, with one."""
    (tmp_path / "grid" / "a").mkdir(parents=True)
    files = [tmp_path / "grid" / "grid.json", tmp_path / "grid" / "grid.csv", tmp_path / "fused.trec"]
    for file in files:
        file.touch()
    assert runs_in([tmp_path / "grid" / "a", *files]) == [tmp_path / "grid" / "a"]
    assert caplog.messages == [f"skipped, because they are files and not run directories: {files[-1]}"]
    with pytest.raises(FileNotFoundError, match="fused.trec is a file; pass a run directory"):
        runs_in(files[-1:])


@pytest.mark.parametrize("file", ["recipe.yaml", "grid.json"])
def test_a_folder_of_runs_is_not_a_run(tmp_path, file):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / file).touch()
    with pytest.raises(
        FileNotFoundError, match=f"is not a run directory, but holds some; pass {tmp_path}/\\*$"
    ):
        runs_in([tmp_path])


def test_a_run_that_comes_twice_is_refused(tmp_path, monkeypatch):
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid" / "grid.json").write_text('{"runs": [{"run": "a", "status": "finished"}]}')
    monkeypatch.chdir(tmp_path)
    run = Path("grid/a")
    for folders in ([run, run], [run, tmp_path / run], [Path("grid"), Path("other"), run]):
        with pytest.raises(ValueError, match=f"run {tmp_path}/grid/a was passed 2 times, .* each run once"):
            runs_in(folders)
