import pytest

from pyserini_ance.recipe import load
from pyserini_ance.recipe.load import find_recipe, shipped


@pytest.fixture
def three_recipes(tmp_path, monkeypatch):
    for name in ("demo/ance", "demo/bm25", "demo/_base", "nfcorpus/ance"):
        path = tmp_path / "recipes" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"name: {name}\n")
    monkeypatch.setattr(load, "SHIPPED", tmp_path / "recipes")
    return tmp_path / "recipes"


def test_a_recipe_is_found_by_shipped_name_or_path(three_recipes, tmp_path, monkeypatch):
    """A file to be extended is found, and is not listed."""
    assert shipped() == ["demo/ance", "demo/bm25", "nfcorpus/ance"]
    for name in ("demo/ance", "demo/ance.yaml", "demo/_base"):
        assert find_recipe(name) == three_recipes / f"{name.removesuffix('.yaml')}.yaml"
    own = tmp_path / "own.yaml"
    own.write_text("name: own\n")
    monkeypatch.chdir(tmp_path)
    assert find_recipe(own) == own and find_recipe("own.yaml").read_text() == "name: own\n"


@pytest.mark.parametrize(
    "name, near", [("demo/anec", "demo/ance"), ("folder/oen.yaml", "own.yaml"), ("zzzz", "")]
)
def test_an_unknown_recipe_is_answered_by_a_similar_one(three_recipes, tmp_path, monkeypatch, name, near):
    monkeypatch.chdir(tmp_path)
    for file in ("own.yaml", "folder/own.yaml"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    with pytest.raises(FileNotFoundError) as error:
        find_recipe(name)
    hint = near and f" (did you mean {near!r}?)"
    expected = f"no recipe {name!r}: neither a file nor a recipe in {three_recipes}{hint}; expected a file"
    assert str(error.value).startswith(expected)
