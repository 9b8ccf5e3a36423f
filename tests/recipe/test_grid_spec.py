from collections import Counter

import pytest

from benchmarks.papers.published import read_published
from pyserini_ance.recipe.grid_spec import Grid
from pyserini_ance.recipe.load import GRIDS, SHIPPED, dump, load


def test_a_grid_is_the_product_of_its_arguments_in_order():
    grid = Grid.parse(["stages.a.optimizer.learning_rate=1e-6,0.5", "seed=42,43"])
    both = [(rate, seed) for rate in ("1e-6", "0.5") for seed in (42, 43)]
    assert list(grid.points) == [f"learning_rate={rate},seed={seed}" for rate, seed in both]
    overrides = ['stages.a.optimizer.learning_rate="1e-6"', "seed=43"]
    assert grid.overrides("learning_rate=1e-6,seed=43") == overrides


def test_a_key_is_set_once_or_replaces_that_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seeds.yaml").write_text("seed: [1, 2]\n")
    assert list(Grid.parse(["seeds.yaml", "seed=3"]).points) == ["seed=3"]
    for arguments in (["seed=1", "seed=2"], ["seed=1", "seeds.yaml"], ["seeds.yaml", "seed=1", "seed=2"]):
        with pytest.raises(ValueError, match=r"both set seed; list all its values in one .*seed=1,2"):
            Grid.parse(arguments)


def test_values_are_those_of_overrides(base):
    grid = Grid.parse(["final_evaluation.measures=[RR@5],[RR@5, R@9]", "bm25={hits: 300},{k1: 2}"])
    first, *_, last = [load(base, *grid.overrides(name)) for name in grid.points]
    assert len(grid.points) == 4 and last.final_evaluation.measures == ("RR@5", "R@9")
    assert (first.bm25.hits, first.bm25.k1, last.bm25.k1) == (300, 0.9, 2)
    grid = Grid.parse(["seed=07,08", "name=a 😀 #1"])
    assert [load(base, *grid.overrides(name)).name for name in grid.points] == ["a 😀 #1", "a 😀 #1"]
    assert [load(base, *grid.overrides(name)).seed for name in grid.points] == [7, 8]


def test_names_fit_folders_and_differ():
    names = list(Grid.parse(["data.folder=a/b,a_b", "name='x y'," + "z" * 300]).points)
    assert len(set(names)) == 4 and all(len(name) <= 157 and not {*"/ "} & {*name} for name in names)
    assert names[0].startswith("folder=a-b,name=x_y-")
    assert list(Grid.parse(["bm25.index=a"]).points) == ["bm25.index=a"]  # tables have a column `index`
    with pytest.raises(ValueError, match=r"--grid: .*a/b.* and .*a-b.* would share the folder folder=a-b"):
        Grid.parse(["data.folder=a/b,c,a-b"])
    with pytest.raises(ValueError, match=r"--grid: .*'A'.* and .*'a'.* would share the folder folder=a"):
        Grid.parse(["data.folder=A,c,a"])


def test_recipes_are_named_by_the_grid_and_found_with_equal_settings():
    grid = Grid.parse(["seed=1,2", "recipe=demo/ance,demo/bm25"])
    assert list(grid.points)[:2] == ["seed=1,recipe=demo-ance", "seed=1,recipe=demo-bm25"]
    assert grid.names_recipes and not Grid.parse(["seed=1,2"]).names_recipes
    assert grid.overrides("seed=2,recipe=demo-ance") == ["seed=2"]
    assert grid.with_recipe("seed=2,recipe=demo-ance", "demo/bm25") == "seed=2,recipe=demo-bm25"
    assert grid.with_recipe("seed=2,recipe=demo-ance", "demo/dance") is None


def test_a_file_is_a_mapping_or_a_list_of_them_and_later_arguments_win(write):
    one = write("one", "seed: [1, 2]\nname: x\n")
    assert list(Grid.parse([str(one)]).points) == ["seed=1,name=x", "seed=2,name=x"]
    assert list(Grid.parse([str(one), "seed=7"]).points) == ["seed=7,name=x"]
    two = write("two", "- {seed: 1}\n- {seed: [2, 3], name: y}\n")
    found = list(Grid.parse([str(two), "threads=1,2"]).points)[::2]
    assert found == ["seed=1,threads=1", "seed=2,name=y,threads=1", "seed=3,name=y,threads=1"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("seed=", "--grid 'seed=': expected dotted.key=value,value"),
        ("seed=[1", r"--grid 'seed=\[1' is not YAML"),
        ("ance-pasages", r"no grid 'ance-pasages': neither .*\(did you mean 'ance-passages'\?\); grids: "),
    ],
)
def test_malformed_grid_arguments_are_rejected(argument, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        Grid.parse([argument])


SETTINGS = {  # points, and recipes that each of them fits
    "ance-passages": (5, ["demo/ance", "msmarco-passage/ance"]),
    "ance-documents": (5, ["demo/ance", "msmarco-doc/ance-firstp"]),
    "tele-alpha": (3, ["demo/ance-tele", "msmarco-passage/ance-tele"]),
    "tele-beta": (3, ["demo/ance-tele", "msmarco-passage/ance-tele"]),
    "tele-negatives": (3, ["demo/ance-tele", "msmarco-passage/ance-tele"]),
    "top-k": (6, ["demo/ance", "medquad/ance"]),
}
GRID_NAMES = sorted(path.stem for path in (SHIPPED / GRIDS).glob("*.yaml"))
FAMILIES = [name for name in GRID_NAMES if name.startswith("family-")]


@pytest.mark.parametrize("name", sorted(set(GRID_NAMES) - set(SETTINGS)))
def test_a_shipped_grid_has_settings_or_uses_shipped_recipes(name):
    grid = Grid.parse([name])
    assert grid.names_recipes
    for run, point in grid.points.items():
        assert load(point["recipe"], *grid.overrides(run))


@pytest.mark.parametrize("name", SETTINGS)
def test_grids_of_settings_fit_recipes_that_ship(name):
    points, recipes = SETTINGS[name]
    grid = Grid.parse([name])
    assert len(grid.points) == points
    for recipe in recipes:
        assert len({dump(load(recipe, *grid.overrides(point))) for point in grid.points}) == points


def test_starts_are_an_axis_and_each_published_row_of_them_has_its_recipe():
    """ANCE-Tele's Table 3: six methods and Zero-Shot, from three models; a recipe expects its own."""
    grid = Grid.parse(["start-encoders"])
    recipes = [load(point["recipe"], *grid.overrides(name)) for name, point in grid.points.items()]
    models = {"bert-base-uncased", "Luyu/condenser", "Luyu/co-condenser-marco"}
    assert len(recipes) == 18 and {recipe.encoder.model for recipe in recipes} == models
    assert all("untrained" in recipe.final_evaluation.rows for recipe in recipes)
    for recipe in recipes:
        assert bool(recipe.expect) == (recipe.encoder.model == "Luyu/co-condenser-marco")
    rows = read_published(SHIPPED / "msmarco-passage").rows
    methods = [row.method for row in rows if (row.source, row.table) == ("tele", 3)]
    names = {recipe.name.rpartition("/")[2] for recipe in recipes} | {"untrained"}
    assert Counter(methods) == dict.fromkeys(names, 3)


def test_the_race_gives_both_methods_one_warm_up_one_budget_one_dev_cadence_and_three_seeds():
    grid, budgets, seeds = Grid.parse(["ltre-against-ance"]), set(), {}
    for name, point in grid.points.items():
        warmup, method = load(point["recipe"], *grid.overrides(name)).stages.values()
        per_step = method.batch_queries
        budgets.add((warmup.model_dump_json(), method.steps * per_step, method.evaluate.model_dump_json()))
        runner = (point["recipe"], method.terms["query"].negatives[0].top_k)
        seeds.setdefault(runner, []).append(point["seed"])
    assert len(budgets) == 1 and {*map(tuple, seeds.values())} == {(42, 43, 44)}
    assert [top_k for recipe, top_k in seeds if recipe == "demo-small/ance"] == [10, 20, 50, 200]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_recipes_of_one_set_with_three_seeds_and_one_budget(family):
    """Steps x queries of a run, with those of the warm-up that it starts from."""
    grid, budgets = Grid.parse([family]), {}
    for name, point in grid.points.items():
        stages = list(load(point["recipe"], *grid.overrides(name)).stages.values())
        starts = [stage.init_from.recipe for stage in stages if stage.starts_from_checkpoint]
        stages += [stage for start in starts for stage in load(start).stages.values()]
        budgets[point["recipe"]] = sum(stage.steps * stage.batch_queries for stage in stages)
    assert {point["seed"] for point in grid.points.values()} == {42, 43, 44}
    assert len(grid.points) == 3 * len(budgets)
    warmup = budgets.pop(f"{family.removeprefix('family-')}/warmup", 0)
    assert len(set(budgets.values())) == 1 and warmup < next(iter(budgets.values()))
