import pytest

from pyserini_ance.recipe import find
from pyserini_ance.recipe.find import find_recipe, find_set, recipes_in, shipped


@pytest.fixture
def three_recipes(tmp_path, monkeypatch):
    for name in ("demo/ance", "demo/bm25", "demo/_base", "nfcorpus/ance"):
        path = tmp_path / "recipes" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"name: {name}\n")
    monkeypatch.setattr(find, "SHIPPED", tmp_path / "recipes")
    return tmp_path / "recipes"


def test_shipped_lists_names_without_suffix(three_recipes):
    assert shipped() == ["demo/ance", "demo/bm25", "nfcorpus/ance"]


@pytest.mark.parametrize("name", ["demo/ance", "demo/ance.yaml"])
def test_shipped_recipe_is_found_by_name(three_recipes, name):
    assert find_recipe(name) == three_recipes / "demo" / "ance.yaml"


def test_file_to_be_extended_is_found_but_not_listed(three_recipes):
    assert find_recipe("demo/_base") == three_recipes / "demo" / "_base.yaml"


def test_path_to_a_file_is_taken_as_it_is(three_recipes, tmp_path, monkeypatch):
    own = tmp_path / "own.yaml"
    own.write_text("name: own\n")
    monkeypatch.chdir(tmp_path)
    assert find_recipe(own) == own
    assert find_recipe("own.yaml").read_text() == "name: own\n"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("demo/anec", "did you mean demo/ance, nfcorpus/ance?"),
        ("anec", "did you mean demo/ance, nfcorpus/ance?"),
        ("ance.yml", "did you mean demo/ance, nfcorpus/ance?"),
        ("own.yml", "did you mean own.yaml?"),
        ("folder/oen.yaml", "did you mean folder/own.yaml?"),
        ("zzzz", "expected a name such as demo/ance"),
    ],
)
def test_an_unknown_recipe_is_answered_by_similar_ones(three_recipes, tmp_path, monkeypatch, name, hint):
    monkeypatch.chdir(tmp_path)
    for file in ("own.yaml", "folder/own.yaml"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    with pytest.raises(FileNotFoundError) as error:
        find_recipe(name)
    assert str(error.value) == f"no recipe {name!r}: neither a file nor a recipe in {three_recipes}; {hint}"


def test_at_most_five_recipes_are_suggested():
    with pytest.raises(FileNotFoundError) as error:
        find_recipe("demo/anc")
    hint = str(error.value).rpartition("did you mean ")[2]
    assert hint.startswith("demo/ance, ") and hint.count(",") == 4


def test_demo_recipe_ships():
    assert find_recipe("demo/ance").is_file()


@pytest.mark.parametrize("name", ["demo", "recipes/demo", "recipes/demo/"])
def test_a_set_is_found_by_name_or_folder(three_recipes, tmp_path, monkeypatch, name):
    monkeypatch.chdir(three_recipes / "nfcorpus")
    assert find_set(name) == three_recipes / "demo" and find_set(str(tmp_path)) == tmp_path
    assert [path.stem for path in recipes_in(find_set(name))] == ["ance", "bm25"]


def test_an_unknown_set_is_named_with_those_that_ship(three_recipes):
    with pytest.raises(
        FileNotFoundError, match=r"no set of recipes 'dmo'.*did you mean 'demo'.*sets: demo, nfcorpus"
    ):
        find_set("dmo")
