"""Tables of finished runs: seeds, repetitions, variants, significance tests, gains of a grid, dev curves."""

import json

import pandas as pd
import pytest
from helpers.finished_run import finished
from helpers.small_set import ONE_STEP

from pyserini_ance.commands import compare as command
from pyserini_ance.evaluation.tables import read_results
from pyserini_ance.recipe.load import dump
from pyserini_ance.reports.compare import (
    compare,
    improvements,
    mean_curves,
    read_distinct,
    row_named,
    runs_in,
    significance,
    time_to_target,
    variant_legend,
)
from pyserini_ance.reports.plots import plot_curves
from pyserini_ance.reports.run_history import dev_curve
from pyserini_ance.runs.rundir import RunDir

QUERIES = "abcd"  # the relevant document of each is `x`


def result(recipe: str, value: float, config_hash: str = "a1b2c3d4", bm25: float = 0.4, **more) -> dict:
    """A run of 21 seconds; `more` are further rows by name: their RR@10."""
    rows = [
        {"row": "bm25", "RR@10": bm25, "test seconds": 2.0},
        {"row": "warm-up", "RR@10": 0.1, "train seconds": 5.0, "refresh seconds": 1.0, "test seconds": 1.0},
        {"row": "last", "RR@10": value, "train seconds": 10.0, "refresh seconds": 3.0, "test seconds": 1.0},
        *({"row": name, "RR@10": value, "test seconds": 0.5} for name, value in more.items()),
    ]
    head = {"run": f"runs/{recipe}", "recipe": recipe, "config_hash": config_hash, "measures": ["RR@10"]}
    return {**head, "rows": rows, "commits": ()}


def test_seeds_of_a_recipe_share_a_row():
    rows, columns = compare([result("demo/ance", 0.5), result("demo/rand", 0.45), result("demo/ance", 0.6)])
    assert columns == ["recipe", "runs", "RR@10", "seconds"]
    assert rows == [
        {"recipe": "bm25", "runs": None, "RR@10": "0.400", "seconds": None, "commit": None},
        {"recipe": "demo/ance", "runs": 2, "RR@10": "0.550 (0.500-0.600)", "seconds": 21, "commit": None},
        {"recipe": "demo/rand", "runs": 1, "RR@10": "0.450", "seconds": 21, "commit": None},
    ]


@pytest.mark.parametrize(
    ("results", "rows"),
    [
        # Rows by another index are no results of their run.
        ([result("a", 0.5, **{"last+OPQ6": 0.2})], [("a", 1, "0.500")]),
        # A result fused with BM25 comes after that of its recipe.
        (
            [result("a", 0.5, hybrid=0.6), result("a", 0.5, hybrid=0.7), result("b", 0.4)],
            [("a", 2, "0.500"), ("a hybrid", 2, "0.650 (0.600-0.700)"), ("b", 1, "0.400")],
        ),
        # Where BM25 measures the same the data does not differ, so that RM3's settings do.
        (
            [result("a", 0.5, **{"bm25+rm3": 0.41}), result("b", 0.5, **{"bm25+rm3": 0.42})],
            [
                ("bm25+rm3 of a [a1b2c3]", None, "0.410"),
                ("bm25+rm3 of b [a1b2c3]", None, "0.420"),
                ("a", 1, "0.500"),
                ("b", 1, "0.500"),
            ],
        ),
        # Recipes, or a grid, may start from several encoders.
        (
            [
                result("a", 0.5, untrained=0.1),
                result("a", 0.5, untrained=0.1),
                result("a", 0.6, "ffffffff", untrained=0.2),
            ],
            [
                ("untrained of a [a1b2c3]", None, "0.100"),
                ("untrained of a [ffffff]", None, "0.200"),
                ("a [a1b2c3]", 2, "0.500"),
                ("a [ffffff]", 1, "0.600"),
            ],
        ),
    ],
)
def test_rows(results, rows):
    """A recipe with other settings has a separate row."""
    found = [(row["recipe"], row["runs"], row["RR@10"]) for row in compare(results)[0]]
    assert found == [("bm25", None, "0.400"), *rows]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (result("b", 0.5, bm25=0.3), "^BM25 measures RR@10 0.4000 in runs/a, but RR@10 0.3000 in runs/b: "),
        ({**result("b", 0.5), "measures": ["AP"]}, "with the same measures"),
    ],
)
def test_runs_on_other_data_or_by_other_measures_are_not_compared(other, message):
    with pytest.raises(ValueError, match=message):
        compare([result("a", 0.5), other])


def test_recorded_commits_are_shown():
    made = [{**result("a", 0.5), "commits": commits} for commits in (("1111111",), ("1111111", "2222222+"))]
    rows, columns = compare([*made, result("b", 0.5)])
    assert columns[-1] == "commit" and [row["commit"] for row in rows] == [None, "1111111, 2222222+", None]


def hits(query: str, place: int) -> list[str]:
    """Four, the relevant one at rank `place`."""
    return [
        f"{query} Q0 {'x' if rank == place else f'y{rank}'} {rank} {9 - rank} t\n" for rank in (1, 2, 3, 4)
    ]


@pytest.fixture
def ranked_run(small_recipe, tmp_path):
    """A finished run whose last row ranks `x` at the given place for each query, and BM25 at the second."""

    def make(name: str, recipe: str, ranks: list[int]):
        run = RunDir(tmp_path / name)
        run.create(dump(small_recipe({"only": ONE_STEP})))
        run.run_files.mkdir()
        for row, places in (("only", ranks), ("bm25", [2] * len(QUERIES))):
            run.ranking(row, "test").write_text(
                "".join(
                    line for query, place in zip(QUERIES, places, strict=True) for line in hits(query, place)
                )
            )
        run.qrels("test").write_text("".join(f"{q} 0 x 1\n" for q in QUERIES))
        rows = [
            {"row": "bm25", "RR@10": 0.5},
            {"row": "only", "RR@10": sum(1 / rank for rank in ranks) / 4, "train seconds": 1.0},
        ]
        run.measures.write_text(
            json.dumps({"recipe": recipe, "config_hash": "v", "measures": ["RR@10"], "rows": rows})
        )
        return run.folder

    return make


def differ_from(runs: list, baseline: str, test: str = "t") -> dict[str, dict[str, str]]:
    """The cells of the table of tests by row, as `MEAN, p P (WON/TIED/LOST)`."""
    (rows, columns), _ = significance([read_results(run) for run in runs], baseline, test)
    return {row["recipe"]: {column: row.get(column) for column in columns[1:]} for row in rows}


def test_seeds_are_one_system_and_queries_are_pairs(ranked_run):
    runs = [
        ranked_run("1", "good", [1, 1, 1, 2]),
        ranked_run("2", "good", [1, 1, 2, 4]),
        ranked_run("3", "bad", [4, 4, 4, 3]),
    ]
    found = differ_from(runs, "bm25")
    # good: (0.5 + 0.5 + 0.25 - 0.125) / 4; bad: (3 x -0.25 + 1/3 - 0.5) / 4
    assert list(found) == ["bad", "good"]
    assert found["good"]["RR@10 against bm25"].startswith("+0.281, p 0.")
    assert found["good"]["RR@10 against bm25"].endswith(" (3/0/1)")
    assert found["bad"]["RR@10 against bm25"].startswith("-0.229, p 0.00")
    # Of sixteen changes of sign two are as extreme, and there are two tests.
    assert ", p 0.250 (" in differ_from(runs, "bm25", "permutation")["bad"]["RR@10 against bm25"]


def test_p_values_are_corrected_for_the_rows_that_are_shown(ranked_run, capsys):
    runs = [ranked_run("1", "good", [1, 1, 1, 2]), ranked_run("2", "bad", [4, 4, 4, 3])]
    p = 2 / 16  # every query differs in one direction: two of the sixteen changes of sign are as extreme
    arguments = [*map(str, runs), "--significance", "bm25", "--test", "permutation", "--rows"]
    command.main([*arguments, "bad"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["bm25", "bad"]
    assert f"p {p:.3f}" in lines[3]
    with pytest.raises(ValueError, match=r"'god' is not a row of the table \(did you mean 'good'\?\)"):
        command.main([*arguments, "god"])


def test_a_split_judged_by_answers_is_skipped(ranked_run, capsys, caplog):
    folder = ranked_run("1", "good", [1, 1, 1, 2])
    run, results = RunDir(folder), read_results(folder)
    run.recipe.write_text(run.recipe.read_text().replace("  split: test\n", "  split: [test, asked]\n"))
    rows = [{**row, "test RR@10": row["RR@10"], "asked RR@10": 0.5} for row in results["rows"]]
    run.measures.write_text(json.dumps({**results, "measures": ["test RR@10", "asked RR@10"], "rows": rows}))
    command.main([str(folder), "--significance", "bm25"])
    assert [cell.strip() for cell in capsys.readouterr().out.split("\n\n")[0].splitlines()[-1].split("|")][
        -3:-1
    ] == ["+0.375, p 0.058 (3/1/0)", "-"]
    assert set(caplog.messages) == {f"{folder} has no judgments of asked: --significance skips it"}


def test_the_table_has_a_column_more_for_each_measure_and_says_how_p_is_corrected(ranked_run, capsys):
    runs = [str(ranked_run("1", "good", [1, 1, 1, 2])), str(ranked_run("2", "bad", [4, 4, 4, 3]))]
    command.main([*runs, "--significance", "bm25", "--test", "permutation"])
    header, _, bm25, _, good, _, *lines = capsys.readouterr().out.splitlines()
    assert header.endswith("| RR@10 against bm25      |") and bm25.endswith("| -                       |")
    assert good.endswith("| +0.375, p 0.250 (3/1/0) |")
    assert lines[-1] == (
        "- against bm25: mean difference over the test queries, p value of a paired permutation test (Holm "
        "over 2 rows, per measure), and queries (won/tied/lost) against bm25"
    )
    command.main([*runs, "--significance", runs[0], "--rows", runs[1]])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert "RR@10 against good" in lines[0]
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["bad", "good"]


def test_what_cannot_be_tested_is_refused(ranked_run):
    runs = [ranked_run("1", "good", [1, 1, 1, 2]), ranked_run("2", "other", [1, 1, 2, 4])]
    with pytest.raises(
        ValueError, match=r"'god' is not a row of the table \(did you mean 'good'\?\); rows: bm25"
    ):
        differ_from(runs, "god")
    path = RunDir(runs[1]).qrels("test")
    path.write_text(path.read_text().replace("d 0 x", "e 0 x"))  # as many queries
    with pytest.raises(
        ValueError, match=f"{runs[1]} was evaluated on other queries or judgments than {runs[0]}"
    ):
        differ_from(runs, "bm25")
    path.unlink()
    with pytest.raises(
        ValueError, match=f"{runs[1]} has no judgments of test, .*: --significance needs judged"
    ):
        differ_from(runs[1:], "bm25")


@pytest.fixture
def make_run(base, tmp_path):
    """A finished run with that RR@10."""

    def make(name: str, value: float, *overrides: str):
        return finished(tmp_path / name, base, {"bm25": 0.5, "only": value}, overrides)

    return make


def names(results: list) -> list[str]:
    return [result["run"] for result in results]


@pytest.mark.parametrize(
    ("value", "overrides", "counts", "message"),
    [
        (
            0.4,
            ["threads=1"],
            False,
            "repeats {}: the same recipe, settings, seed and measures; it is not counted",
        ),
        (0.41, [], True, None),
        (0.4, ["seed=43"], True, None),
        (0.4, ["bm25.k1=0.5"], True, None),
    ],
)
def test_a_repeated_seed_counts_once(make_run, caplog, value, overrides, counts, message):
    runs = [make_run("first", 0.4), make_run("again", value, *overrides)]
    assert names(read_distinct(runs)) == [str(run) for run in runs[: 1 + counts]]
    assert [message.format(runs[0]) in text for text in caplog.messages] == [True] * bool(message)


def test_runs_that_start_from_other_seeds_are_no_repetition(make_run, caplog):
    starts = [make_run("warm", 0.1), make_run("warm-43", 0.1, "seed=43")]
    runs = [
        make_run(f"from-{run.name}", 0.4, f"stages.only.init_from={{run: {run}, stage: only}}")
        for run in starts
    ]
    assert names(read_distinct(runs)) == [str(run) for run in runs] and not caplog.messages


def test_a_legend_says_what_variants_differ_in(make_run):
    """Seeds are no variants, and a variant has the keys in which any other differs."""
    runs = [
        make_run("one", 0.4, "stages.only.steps=20"),
        make_run("43", 0.5, "stages.only.steps=20", "seed=43"),
        make_run("two", 0.6, "stages.only.steps=30"),
        make_run("three", 0.7, "stages.only.steps=20", "stages.only.batch_queries=8"),
    ]
    results = read_distinct(runs)
    tags = {run.name: f"[{result['config_hash'][:6]}]" for run, result in zip(runs, results, strict=True)}
    rows = [row["recipe"] for row in compare(results)[0]]
    assert f"set/ance {tags['one']}" in rows
    assert variant_legend(results, rows) == [
        f"{tags['one']}: stages.only.steps=20; stages.only.batch_queries=4",
        f"{tags['two']}: stages.only.steps=30; stages.only.batch_queries=4",
        f"{tags['three']}: stages.only.steps=20; stages.only.batch_queries=8",
    ]
    assert variant_legend(results, [f"set/ance {tags['two']}"]) == variant_legend(results, rows)[1:2]
    assert variant_legend(results[:2], ["bm25", "set/ance"]) == []


def test_a_legend_shows_some_keys(make_run):
    keys = ["stages.only.steps=30", "stages.only.batch_queries=8", "bm25.k1=0.5", "bm25.b=0.5"]
    runs = [make_run("one", 0.4), make_run("two", 0.4, *keys)]
    lines = variant_legend(results := read_distinct(runs), [row["recipe"] for row in compare(results)[0]])
    assert len(lines) == 2 and all(line.endswith("; and 1 more") and line.count("=") == 3 for line in lines)


def test_a_folder_names_the_row_of_its_runs(make_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [
        make_run("grid/42", 0.4),
        make_run("grid/43", 0.5, "seed=43"),
        make_run("other", 0.6, "bm25.k1=0.5"),
    ]
    results = read_distinct(runs)
    rows = [row["recipe"] for row in compare(results)[0]]
    tagged = f"set/ance [{results[0]['config_hash'][:6]}]"
    assert row_named("grid/42", results) == row_named(str(tmp_path / "grid"), results) == tagged
    assert row_named("other/", results) in rows and row_named("other/", results) != tagged
    assert row_named("bm25", results) == "bm25" and row_named("absent", results) == "absent"
    with pytest.raises(ValueError, match=r"^\. has runs in several rows: set/ance \[.*; pass one of them"):
        row_named(".", results)


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


@pytest.mark.parametrize(
    ("key", "recipe"),
    [
        ("projection", "s/bm25"),  # a setting of one recipe alone, as in the grid ltre-against-ance
        ("projection", None),
        ("recipe", "s/bm25"),
    ],
)
def test_settings_that_runs_lack(grid, key, recipe):
    record = json.loads((grid / "grid.json").read_text())
    if key == "recipe":  # combinations without a recipe use the grid's
        record["recipe"] = recipe
        record["runs"] = [{k: v for k, v in r.items() if (k, v) != (key, recipe)} for r in record["runs"]]
    elif recipe:
        for run in record["runs"]:
            run["projection"] = "64"
            if run["recipe"] == recipe:
                del run["projection"]
    else:
        record["runs"] = [{k: v for k, v in r.items() if v != "null"} for r in record["runs"]]
    (grid / "grid.json").write_text(json.dumps(record))
    rows, columns = improvements(grid, "s/bm25")
    exact = [
        (row.get("projection"), row["recipe"], row.get("RR@10 gain"))
        for row in rows
        if row["index"] == "exact"
    ]
    if key == "projection" and recipe:
        gain = f"{((0.63 + 0.15) / 2 / ((0.40 + 0.44 + 0.20) / 3) - 1) * 100:+.1f} %"
        assert columns[0] == "index" and exact == [(None, "s/bm25", None), (None, "s/ance", gain)]
    else:
        first = None if key == "projection" else "null"
        ance = [row[-1] for row in exact if row[1] == "s/ance"]
        assert columns[0] == "projection" and ance == ["+50.0 %", "-25.0 %"]
        assert [row[0] for row in exact] == [first, first, "64", "64"]


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


def test_a_grids_folder_selects_its_finished_runs(tmp_path, caplog):
    assert runs_in([tmp_path]) == [tmp_path]
    runs = [
        {"run": name, "status": status}
        for name, status in (("a", "finished"), ("b", "failed"), ("c", "waiting"))
    ]
    (tmp_path / "grid.json").write_text(json.dumps({"runs": runs}))
    (tmp_path / "fused.trec").touch()  # a shell's `runs/*` names files too
    listed = [tmp_path, tmp_path / "fused.trec", tmp_path / "b", tmp_path / "a"]
    assert runs_in(listed) == [tmp_path / "a", tmp_path / "b"]
    assert caplog.messages == [f"{tmp_path}: 1 of 3 runs have finished; the others are skipped"]
    (tmp_path / "grid.json").write_text(json.dumps({"runs": runs[1:]}))
    with pytest.raises(ValueError, match="no run of this grid has finished yet"):
        runs_in([tmp_path])
    with pytest.raises(FileNotFoundError, match="fused.trec is a file; pass a run directory"):
        runs_in(listed[1:2])


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
    after += [
        {"event": "dev", "stage": "b", "step": 1, "checkpoint_step": 1, "measure": "RR@10", "value": 0.6}
    ]
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
