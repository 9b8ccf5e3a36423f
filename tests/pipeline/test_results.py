from dataclasses import replace

from pyserini_ance.pipeline.results import Results
from pyserini_ance.recipe.load import load


def result(*overrides: str) -> Results:
    rows = [
        {"row": "bm25", "RR@10": 0.5, "test seconds": 2.04},
        {"row": "ance", "RR@10": 0.625, "train seconds": 10.0, "refresh seconds": 3.0},
    ]
    exported = {"notes": ["queries: as here"], "command": "search --index i"}
    return Results(
        load("demo/ance", "final_evaluation.measures=[RR@10]", *overrides).recipe,
        rows,
        {"everything": 12.5},
        exported,
    )


def test_the_table_and_what_to_type_next():
    assert result("expect=null").as_text() == (
        "| row  |  RR@10 | train seconds | refresh seconds | test seconds |\n"
        "| ---- | -----: | ------------: | --------------: | -----------: |\n"
        "| bm25 | 0.5000 |             - |               - |          2.0 |\n"
        "| ance | 0.6250 |          10.0 |             3.0 |            - |\n"
        "\n"
        "- train seconds: optimizer steps\n"
        "- refresh seconds: checkpoints, encoding, mining, dev evaluation\n"
        "- test seconds: encoding and ranking for the final evaluation\n"
        "\n"
        "seconds: everything 12.5\n"
        "queries: as here\n"
        "search with it:\n"
        "  search --index i"
    )


def test_a_result_that_is_worse_than_its_start_is_a_loud_line():
    found = result("expect=null")
    found.rows.insert(1, {"row": "untrained", "RR@10": 0.75, "test seconds": 2.0})
    found = replace(found, warnings=["stage bm25-neg never improved on its start: the result is that of a"])
    lines = found.as_text().splitlines()
    assert lines[9:13] == [
        "",
        "WARNING: stage bm25-neg never improved on its start: the result is that of a",
        "WARNING: ance is below the untrained encoder: RR@10 0.6250 instead of 0.7500. See "
        "docs/guides/choosing-a-method.md, It got worse",
        "",
    ]
    assert [f"WARNING: {line}" for line in found.as_json()["warnings"]] == lines[10:12]
    found.rows[1]["RR@10"] = 0.625
    assert found.all_warnings == found.warnings


def test_bm25_above_the_result_and_above_both_fused_is_a_loud_line():
    found = result("expect=null")
    hybrid = {"row": "hybrid", "RR@10": 0.65}
    found.rows.append(hybrid)
    assert found.all_warnings == []
    found.rows[0]["RR@10"] = 0.64
    assert found.all_warnings == []
    hybrid["RR@10"] = 0.63
    assert found.all_warnings == ["bm25 alone is the best row: RR@10 0.6400, ance 0.6250, hybrid 0.6300"]


def test_the_fusion_with_bm25_comes_last():
    found = result("expect=null")
    found.exported["hybrid"] = "fuse one\nfuse two"
    assert found.as_text().endswith(
        "\n  search --index i\nfuse it with BM25, as in row hybrid:\n  fuse one\n  fuse two"
    )


def test_expected_figures_follow_the_table():
    lines = result("expect={test: {RR@10: 0.6}}").as_text().splitlines()
    assert [line for line in lines if "expected" in line or "RR@10 |" in line][1:] == [
        "| ance  | expected | measured | difference |", "| RR@10 |   0.6000 |   0.6250 | +0.0250    |"
    ]  # fmt: skip


def test_a_variant_has_no_expected_figures():
    assert "expected" not in result("encoder.projection=64").as_text()


def test_the_record_says_which_recipe_and_measures():
    found = result("seed=7").as_json()
    assert (found["recipe"], found["config_hash"], found["measures"]) == (
        "demo/ance",
        result().as_json()["config_hash"],
        ["RR@10"],
    )
    assert (
        found["rows"][1]["RR@10"] == 0.625
        and found["seconds"] == {"everything": 12.5}
        and found["export"]["command"] == "search --index i"
    )
