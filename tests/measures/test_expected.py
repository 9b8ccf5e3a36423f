from pyserini_ance.measures.expected import beside_expected
from pyserini_ance.recipe.load import load

ROW = {"row": "ance", "dev RR@10": 0.3212, "test-rerank nDCG@10": 0.5, "train seconds": 1.0}


def test_what_is_tested_and_expected(base):
    expect = "expect={dev: {RR@10: 0.33, AP: 0.2}, test-rerank: {nDCG@10: 0.4}, eval: {RR@10: 0.3}}"
    recipe = load(base, "test.split=[dev,test]", "test.measures=[RR@10]", "test.rerank={test: {}}", expect).recipe
    assert beside_expected(recipe, ROW) == (
        "| ance                | expected | measured | difference |\n"
        "| ------------------- | -------: | -------: | ---------- |\n"
        "| dev RR@10           |   0.3300 |   0.3212 | -0.0088    |\n"
        "| test-rerank nDCG@10 |   0.4000 |   0.5000 | +0.1000    |"
    )


def test_nothing_where_nothing_is_expected(base):
    assert beside_expected(load(base).recipe, ROW) == ""
