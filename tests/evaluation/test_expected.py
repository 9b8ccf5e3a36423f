from pyserini_ance.evaluation.metrics import expected_columns
from pyserini_ance.recipe.load import load

ROW = {"row": "ance", "dev RR@10": 0.3212, "test-rerank nDCG@10": 0.5, "train seconds": 1.0}


def test_columns_that_are_evaluated_and_expected(base):
    expect = "expect={dev: {RR@10: 0.33, AP: 0.2}, test-rerank: {nDCG@10: 0.4}, eval: {RR@10: 0.3}}"
    recipe = load(
        base,
        "final_evaluation.split=[dev,test]",
        "final_evaluation.measures=[RR@10]",
        "final_evaluation.rerank={test: {}}",
        expect,
    ).recipe
    assert expected_columns(recipe, ROW) == (
        "| ance                | expected | measured | difference |\n"
        "| ------------------- | -------: | -------: | ---------- |\n"
        "| dev RR@10           |   0.3300 |   0.3212 | -0.0088    |\n"
        "| test-rerank nDCG@10 |   0.4000 |   0.5000 | +0.1000    |"
    )


def test_nothing_where_nothing_is_expected(base):
    assert expected_columns(load(base).recipe, ROW) == ""
