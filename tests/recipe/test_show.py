import yaml

from pyserini_ance.recipe.load import dump, load
from pyserini_ance.recipe.show import annotated


def test_each_value_that_is_not_a_default_has_its_origin_beside_it(base):
    shown = annotated(load(base, "seed=7", "stages.only.terms.query.negatives.1.depth=9"))
    origins = {line.split("#")[0].strip(): line.partition("# ")[2] for line in shown.splitlines()}
    assert origins["seed: 7"] == origins["depth: 9"] == "command line"
    assert origins["folder: some/where"] == origins["steps: 10"] == origins["- kind: run"] == origins["scale: 2.0"] == str(base)
    assert origins["stages:"] == origins["weight: 1.0"] == origins["hits: 200"] == ""


def test_the_annotated_recipe_is_still_the_recipe(base, write):
    recipe = load(
        base,
        "about='two lines: of text\n\nthe second: with # in it'",
        "expect={empty: {}, '007': {RR@10: 0.5, 'R(rel=2)@9': 1}, 'a.b': {AP: 0}}",
        "test.measures=['RR(rel=2)@10', '" + "word " * 60 + "']",
    )
    shown = annotated(recipe)
    assert yaml.safe_load(shown) == yaml.safe_load(dump(recipe.recipe))
    assert load(write("shown", shown)).recipe == recipe.recipe
