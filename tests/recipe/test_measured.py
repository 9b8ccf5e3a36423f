"""The recipes of the small sets expect what recipes/README.md says was measured."""

import re

import pytest

from pyserini_ance.recipe.find import SHIPPED, shipped
from pyserini_ance.recipe.grid_spec import Grid
from pyserini_ance.recipe.load import load

README = (SHIPPED / "README.md").read_text()
ROW = re.compile(
    r"^\| (\w+/[\w-]+) +\| +\d \| (0\.\d{3})\D[^|]*\| (0\.\d{3})\D[^|]*\| (0\.\d{3})\D", re.MULTILINE
)
MEASURED = {
    name: dict(zip(("nDCG@10", "RR@10", "R@100"), map(float, figures), strict=True))
    for name, *figures in ROW.findall(README)
}
OF_SMALL_SETS = [name for name in shipped() if name.split("/")[0] in ("demo", "nfcorpus", "medquad")]


@pytest.mark.parametrize("name", OF_SMALL_SETS)
def test_a_recipe_expects_the_mean_of_its_row_and_nothing_of_the_recipe_that_it_extends(name):
    apart = {"demo/nce": {"nDCG@10": 0.503, "RR@10": 0.451, "R@100": 0.877}}  # measured outside the table
    found = {**MEASURED, **apart}.get(name)
    assert load(name).recipe.expect == ({"test": found} if found else {})


@pytest.mark.parametrize("family", ["demo", "nfcorpus", "medquad"])
def test_the_table_has_all_recipes_of_a_family(family):
    assert {point["recipe"] for point in Grid.parse([f"family-{family}"]).points.values()} == {
        n for n in MEASURED if n.startswith(f"{family}/")
    }


def test_the_recipes_of_the_demo_expect_what_the_project_page_shows():
    page = SHIPPED.parent / "README.md"
    if not page.exists():
        pytest.skip("an installed package has no README.md beside it")
    shown = re.findall(
        r"^\| (demo-small/[\w-]+) +\| (\S+) +\| (\S+) +\| (\S+) +\|", page.read_text(), re.MULTILINE
    )
    assert len(shown) == 3
    for name, *figures in shown:
        expected = dict(zip(("nDCG@10", "RR@10", "R@100"), map(float, figures), strict=True))
        assert load(name).recipe.expect == {"test": expected}
