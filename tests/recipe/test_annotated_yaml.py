import yaml

from pyserini_ance.recipe.annotated_yaml import annotated_yaml
from pyserini_ance.recipe.load import dump, load


def test_each_value_that_is_not_a_default_has_its_origin_in_a_comment(base):
    shown = annotated_yaml(load(base, "seed=7", "stages.only.terms.query.negatives.1.top_k=9"))
    origins = {line.split("#")[0].strip(): line.partition("# ")[2] for line in shown.splitlines()}
    assert origins["seed: 7"] == origins["top_k: 9"] == "command line"
    assert (
        origins["folder: some/where"]
        == origins["steps: 10"]
        == origins["- kind: bm25"]
        == origins["scale: 2.0"]
        == str(base)
    )
    assert origins["stages:"] == origins["weight: 1.0"] == origins["hits: 200"] == ""


def test_defaults_inside_a_list_and_of_a_kind_given_by_name_have_no_origin(base):
    """The list comes from the file, but not what its items leave out."""
    shown = annotated_yaml(load(base, "stages.only.terms.query.negatives=[{kind: bm25, top_k: 9}, random]"))
    lines = [
        line for line in shown.splitlines() if line.lstrip().startswith(("- kind:", "top_k:", "num_neg"))
    ]
    assert [line.partition("# ")[2] for line in lines if "kind" in line] == ["command line", "command line"]
    assert [line.split() for line in lines if "top_k" in line] == [["top_k:", "9", "#", "command", "line"]]
    numbers = [line for line in lines if "num_neg" in line]
    assert numbers and not any("#" in line for line in numbers)


def test_the_annotated_recipe_is_still_the_recipe(base, tmp_path):
    recipe = load(
        base,
        "description='two lines: of text\n\nthe second: with # in it'",
        "expect={empty: {}, '007': {RR@10: 0.5, 'R(rel=2)@9': 1}, 'a.b': {AP: 0}}",
        "final_evaluation.measures=['RR(rel=2)@10', '" + "word " * 60 + "']",
    )
    shown = annotated_yaml(recipe)
    assert yaml.safe_load(shown) == yaml.safe_load(dump(recipe.recipe))
    (tmp_path / "shown.yaml").write_text(shown)
    assert load(tmp_path / "shown.yaml").recipe == recipe.recipe
