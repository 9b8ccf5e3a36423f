import json

import pytest

from pyserini_ance.analysis.run_comparison import compare
from pyserini_ance.evaluation.tables import read_results


def result(
    recipe: str, value: float, bm25: float = 0.4, config_hash: str = "a1b2c3d4", commits: tuple[str, ...] = ()
) -> dict:
    rows = [
        {"row": "bm25", "RR@10": bm25, "test seconds": 2.0},
        {"row": "warm-up", "RR@10": 0.1, "train seconds": 5.0, "refresh seconds": 1.0, "test seconds": 1.0},
        {"row": "last", "RR@10": value, "train seconds": 10.0, "refresh seconds": 3.0, "test seconds": 1.0},
    ]
    return {
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
        r"BM25 measures {'RR@10': 0.4, 'recipe': 'a'} in one run and {'RR@10': 0.3, 'recipe': 'b'} "
        r"in another: .* the same bm25.k1, bm25.b and "
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
    assert read_results(tmp_path) == {"rows": [], "commits": []}
    first, second = (
        {"commit": {"hash": digit * 40, "changed": changed}} for digit, changed in (("1", False), ("2", True))
    )
    (tmp_path / "environment.json").write_text(json.dumps(first))
    resumed = [
        {"event": "resume", "environment": made} for made in (first, second, {"commit": None}, {})
    ]  # the last of an older version
    (tmp_path / "decisions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in resumed))
    assert read_results(tmp_path)["commits"] == ["1111111", "2222222+"]
