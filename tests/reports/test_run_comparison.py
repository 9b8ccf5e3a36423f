import json

import pytest
from helpers.small_set import ONE_STEP

from pyserini_ance.commands import compare as command
from pyserini_ance.evaluation.tables import read_results
from pyserini_ance.recipe.load import dump
from pyserini_ance.reports.run_comparison import compare, significance
from pyserini_ance.runs.rundir import RunDir

QUERIES = "abcd"  # the relevant document of each is `x`


def result(
    recipe: str, value: float, bm25: float = 0.4, config_hash: str = "a1b2c3d4", commits: tuple[str, ...] = ()
) -> dict:
    rows = [
        {"row": "bm25", "RR@10": bm25, "test seconds": 2.0},
        {"row": "warm-up", "RR@10": 0.1, "train seconds": 5.0, "refresh seconds": 1.0, "test seconds": 1.0},
        {"row": "last", "RR@10": value, "train seconds": 10.0, "refresh seconds": 3.0, "test seconds": 1.0},
    ]
    return {
        "run": f"runs/{recipe}",
        "recipe": recipe,
        "config_hash": config_hash,
        "measures": ["RR@10"],
        "rows": rows,
        "commits": commits,
    }


def test_seeds_of_a_recipe_share_a_row():
    rows, columns = compare([result("demo/ance", 0.5), result("demo/rand", 0.45), result("demo/ance", 0.6)])
    assert columns == ["recipe", "runs", "RR@10", "seconds"]
    assert rows == [
        {"recipe": "bm25", "runs": None, "RR@10": "0.400", "seconds": None, "commit": None},
        {"recipe": "demo/ance", "runs": 2, "RR@10": "0.550 (0.500-0.600)", "seconds": 21, "commit": None},
        {"recipe": "demo/rand", "runs": 1, "RR@10": "0.450", "seconds": 21, "commit": None},
    ]


def test_the_row_of_a_run_is_that_of_its_last_stage_and_not_by_another_index():
    compressed = result("a", 0.5)
    compressed["rows"].append({"row": "last+OPQ6,IVF1,PQ6", "RR@10": 0.2, "test seconds": 1.0})
    assert compare([compressed])[0][1] == {
        "recipe": "a",
        "runs": 1,
        "RR@10": "0.500",
        "seconds": 21,
        "commit": None,
    }


def test_a_result_fused_with_bm25_has_a_row_after_that_of_its_recipe():
    fused = [result("a", 0.5), result("a", 0.5)]
    for run, value in zip(fused, (0.6, 0.7), strict=True):
        run["rows"].append({"row": "hybrid", "RR@10": value, "test seconds": 0.5})
    rows, _ = compare([*fused, result("b", 0.4)])
    assert [(row["recipe"], row["runs"], row["RR@10"], row["seconds"]) for row in rows] == [
        ("bm25", None, "0.400", None),
        ("a", 2, "0.500", 21),
        ("a hybrid", 2, "0.650 (0.600-0.700)", 21),
        ("b", 1, "0.400", 21),
    ]


def test_runs_on_other_data_are_not_compared():
    message = (
        "^BM25 measures RR@10 0.4000 in runs/a, but RR@10 0.3000 in runs/b: compare runs on the same data "
        "and test split, with the same bm25.k1, "
    )
    with pytest.raises(ValueError, match=message):
        compare([result("a", 0.5), result("b", 0.5, bm25=0.3)])


def test_each_setting_of_rm3_has_a_row_that_names_its_recipe():
    """Where BM25 measures the same the data does not differ, so that RM3's settings do."""
    results = [result("a", 0.5), result("b", 0.5)]
    for found, value in zip(results, (0.41, 0.42), strict=True):
        found["rows"].insert(1, {"row": "bm25+rm3", "RR@10": value})
    assert [row["recipe"] for row in compare(results)[0]] == [
        "bm25",
        "bm25+rm3 of a [a1b2c3]",
        "bm25+rm3 of b [a1b2c3]",
        "a",
        "b",
    ]


def test_each_untrained_encoder_has_a_row():
    """Recipes, or a grid, may start from several encoders."""
    results = [result("a", 0.5), result("a", 0.5), result("a", 0.6, config_hash="ffffffff")]
    for found, value in zip(results, (0.1, 0.1, 0.2), strict=True):
        found["rows"].insert(1, {"row": "untrained", "RR@10": value})
    assert [(row["recipe"], row["RR@10"]) for row in compare(results)[0]] == [
        ("bm25", "0.400"), ("untrained of a [a1b2c3]", "0.100"), ("untrained of a [ffffff]", "0.200"),
        ("a [a1b2c3]", "0.500"), ("a [ffffff]", "0.600"),
    ]  # fmt: skip


def test_an_unfinished_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="not a finished run"):
        read_results(tmp_path)
    (tmp_path / "measures.json").write_text('{"recipe": "a", ')
    with pytest.raises(RuntimeError, match=f"{tmp_path}/measures.json was damaged"):
        read_results(tmp_path)


def test_a_recipe_with_other_settings_has_a_separate_row():
    rows, _ = compare([result("demo/ance", 0.5), result("demo/ance", 0.6, config_hash="ffffffff")])
    assert [(row["recipe"], row["runs"]) for row in rows[1:]] == [
        ("demo/ance [a1b2c3]", 1),
        ("demo/ance [ffffff]", 1),
    ]


def test_other_measures_are_not_compared():
    with pytest.raises(ValueError, match="with the same measures"):
        compare([result("a", 0.5), {**result("b", 0.5), "measures": ["AP"]}])


def test_recorded_commits_are_shown():
    results = [
        result("a", 0.5, commits=("1111111",)),
        result("a", 0.6, commits=("1111111", "2222222+")),
        result("b", 0.5),
    ]
    rows, columns = compare(results)
    assert columns[-1] == "commit"
    assert [(row["recipe"], row["commit"]) for row in rows] == [
        ("bm25", None),
        ("a", "1111111, 2222222+"),
        ("b", None),
    ]


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


def hits(query: str, place: int) -> list[str]:
    """Four, the relevant one at rank `place`."""
    return [
        f"{query} Q0 {'x' if rank == place else f'y{rank}'} {rank} {9 - rank} t\n" for rank in (1, 2, 3, 4)
    ]


@pytest.fixture
def make_run(small_recipe, tmp_path):
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


def differ_from(runs: list, baseline: str, test: str = "t") -> dict:
    return significance(runs, [read_results(run) for run in runs], baseline, test)


def test_seeds_are_one_system_and_queries_are_pairs(make_run):
    runs = [
        make_run("1", "good", [1, 1, 1, 2]),
        make_run("2", "good", [1, 1, 2, 4]),
        make_run("3", "bad", [4, 4, 4, 3]),
    ]
    found = differ_from(runs, "bm25")
    assert list(found) == ["bad", "good"]
    good = found["good"]["RR@10"]
    assert good.mean == pytest.approx((0.5 + 0.5 + 0.25 - 0.125) / 4) and (
        good.wins,
        good.ties,
        good.losses,
    ) == (3, 0, 1)
    bad = found["bad"]["RR@10"]
    assert bad.mean == pytest.approx((3 * -0.25 + 1 / 3 - 0.5) / 4) and bad.p < 0.01
    assert differ_from(runs, "bm25", "permutation")["bad"]["RR@10"].p == pytest.approx(
        2 * 2 / 16
    )  # of two signs each, and two tests


def test_p_values_are_corrected_for_the_rows_that_are_shown(make_run, capsys):
    runs = [make_run("1", "good", [1, 1, 1, 2]), make_run("2", "bad", [4, 4, 4, 3])]
    p = 2 / 16  # every query differs in one direction: two of the sixteen changes of sign are as extreme
    assert differ_from(runs, "bm25", "permutation")["bad"]["RR@10"].p == pytest.approx(2 * p)
    arguments = [*map(str, runs), "--significance", "bm25", "--test", "permutation", "--rows"]
    command.main([*arguments, "bad"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["bm25", "bad"]
    assert f"p {p:.3f}" in lines[3]
    with pytest.raises(ValueError, match=r"'god' is not a row of the table \(did you mean 'good'\?\)"):
        command.main([*arguments, "god"])


def test_a_split_judged_by_answers_is_skipped(make_run, capsys, caplog):
    folder = make_run("1", "good", [1, 1, 1, 2])
    run, results = RunDir(folder), read_results(folder)
    run.recipe.write_text(run.recipe.read_text().replace("  split: test\n", "  split: [test, asked]\n"))
    rows = [{**row, "test RR@10": row["RR@10"], "asked RR@10": 0.5} for row in results["rows"]]
    run.measures.write_text(json.dumps({**results, "measures": ["test RR@10", "asked RR@10"], "rows": rows}))
    assert {name: list(found) for name, found in differ_from([folder], "bm25").items()} == {
        "good": ["test RR@10"]
    }
    command.main([str(folder), "--significance", "bm25"])
    assert [cell.strip() for cell in capsys.readouterr().out.split("\n\n")[0].splitlines()[-1].split("|")][
        -3:-1
    ] == ["+0.375, p 0.058 (3/1/0)", "-"]
    message = (
        f"{folder} has no judgments of asked, whose passages are judged by the answers they contain: "
        "--significance skips them"
    )
    assert set(caplog.messages) == {message}


def test_runs_whose_splits_are_all_judged_by_answers_are_refused(make_run):
    folder = make_run("1", "good", [1, 1, 1, 2])
    RunDir(folder).qrels("test").unlink()
    with pytest.raises(
        ValueError,
        match=f"{folder} has no judgments of test, .*: --significance needs judged queries; remove it",
    ):
        differ_from([folder], "bm25")


def test_the_table_has_a_column_more_for_each_measure(make_run, capsys):
    command.main(
        [str(make_run("1", "good", [1, 1, 1, 2])), "--significance", "bm25", "--test", "permutation"]
    )
    header, _, bm25, good, _, *lines = capsys.readouterr().out.splitlines()
    assert header.endswith("| RR@10 against bm25      |") and bm25.endswith("| -                       |")
    assert good.endswith("| +0.375, p 0.250 (3/1/0) |")
    assert lines[-1] == (
        "- against bm25: mean difference over the test queries, p value of a paired permutation test with "
        "Holm's correction for the number of rows, and queries (won/tied/lost) against bm25"
    )


def test_run_directories_name_their_rows(make_run, capsys):
    runs = [str(make_run("1", "good", [1, 1, 1, 2])), str(make_run("2", "bad", [4, 4, 4, 3]))]
    command.main([*runs, "--significance", runs[0], "--rows", runs[1]])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert "RR@10 against good" in lines[0]
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["bad", "good"]


def test_a_baseline_that_is_not_a_row_is_rejected(make_run):
    with pytest.raises(
        ValueError,
        match=r"--significance 'god' is not a row of the table \(did you mean 'good'\?\); rows: bm25, good",
    ):
        differ_from([make_run("1", "good", [1, 1, 1, 1])], "god")


def test_runs_with_other_judgments_are_refused(make_run):
    """As many queries, so that pairing them would go unnoticed."""
    runs = [make_run("1", "good", [1, 1, 1, 2]), make_run("2", "other", [1, 1, 2, 4])]
    path = RunDir(runs[1]).qrels("test")
    path.write_text(path.read_text().replace("d 0 x", "e 0 x"))
    with pytest.raises(
        ValueError,
        match=f"{runs[1]} was evaluated on other queries or judgments than {runs[0]}: "
        "compare runs on the same data",
    ):
        differ_from(runs, "bm25")
