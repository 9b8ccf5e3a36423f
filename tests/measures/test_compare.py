import pytest

from pyserini_ance.measures.compare import compare, read_results


def result(recipe: str, value: float, bm25: float = 0.4, variant: str = "a1b2c3d4") -> dict:
    rows = [
        {"row": "bm25", "RR@10": bm25, "test seconds": 2.0},
        {"row": "warm-up", "RR@10": 0.1, "train seconds": 5.0, "refresh seconds": 1.0, "test seconds": 1.0},
        {"row": "last", "RR@10": value, "train seconds": 10.0, "refresh seconds": 3.0, "test seconds": 1.0},
    ]
    return {"recipe": recipe, "variant": variant, "measures": ["RR@10"], "rows": rows}


def test_seeds_of_a_recipe_share_a_row():
    rows, columns = compare([result("demo/ance", 0.5), result("demo/rand", 0.45), result("demo/ance", 0.6)])
    assert columns == ["recipe", "runs", "RR@10", "seconds"]
    assert rows == [
        {"recipe": "bm25", "runs": None, "RR@10": "0.400", "seconds": None},
        {"recipe": "demo/ance", "runs": 2, "RR@10": "0.550 (0.500-0.600)", "seconds": 21},
        {"recipe": "demo/rand", "runs": 1, "RR@10": "0.450", "seconds": 21},
    ]


def test_the_row_of_a_run_is_that_of_its_last_stage_and_not_by_another_index():
    compressed = result("a", 0.5)
    compressed["rows"].append({"row": "last+OPQ6,IVF1,PQ6", "RR@10": 0.2, "test seconds": 1.0})
    assert compare([compressed])[0][1] == {"recipe": "a", "runs": 1, "RR@10": "0.500", "seconds": 21}


def test_runs_on_other_data_are_not_compared():
    told = r"BM25 measures {'RR@10': 0.4, 'recipe': 'a'} in one run and {'RR@10': 0.3, 'recipe': 'b'} in another: .* the same bm25.k1, bm25.b and "
    with pytest.raises(ValueError, match=told):
        compare([result("a", 0.5), result("b", 0.5, bm25=0.3)])


def test_each_setting_of_rm3_has_a_row_that_names_its_recipe():
    """Where BM25 measures the same the data does not differ, so that RM3's settings do."""
    results = [result("a", 0.5), result("b", 0.5)]
    for found, value in zip(results, (0.41, 0.42), strict=True):
        found["rows"].insert(1, {"row": "bm25+rm3", "RR@10": value})
    assert [row["recipe"] for row in compare(results)[0]] == ["bm25", "bm25+rm3 of a [a1b2c3]", "bm25+rm3 of b [a1b2c3]", "a", "b"]


def test_each_untrained_encoder_has_a_row():
    """Recipes, or a grid, may start from several encoders."""
    results = [result("a", 0.5), result("a", 0.5), result("a", 0.6, variant="ffffffff")]
    for found, value in zip(results, (0.1, 0.1, 0.2), strict=True):
        found["rows"].insert(1, {"row": "untrained", "RR@10": value})
    assert [(row["recipe"], row["RR@10"]) for row in compare(results)[0]] == [
        ("bm25", "0.400"), ("untrained of a [a1b2c3]", "0.100"), ("untrained of a [ffffff]", "0.200"),
        ("a [a1b2c3]", "0.500"), ("a [ffffff]", "0.600"),
    ]  # fmt: skip


def test_an_unfinished_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no finished run"):
        read_results(tmp_path)


def test_a_recipe_with_other_settings_is_no_seed_of_it():
    rows, _ = compare([result("demo/ance", 0.5), result("demo/ance", 0.6, variant="ffffffff")])
    assert [(row["recipe"], row["runs"]) for row in rows[1:]] == [("demo/ance [a1b2c3]", 1), ("demo/ance [ffffff]", 1)]


def test_other_measures_are_not_compared():
    with pytest.raises(ValueError, match="like with like"):
        compare([result("a", 0.5), {**result("b", 0.5), "measures": ["AP"]}])
