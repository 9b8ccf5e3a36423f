"""The overrides that docs/guides/scaling.md shows fit the recipe that it shows them for."""

import re
import shlex
from pathlib import Path

from pyserini_ance.recipe.load import load

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "scaling.md").read_text(encoding="utf-8")


def test_a_recipe_without_bm25_takes_its_ranking_from_a_file():
    (shown,) = re.findall(r"pyserini-ance train ([^\n]* bm25=null .*?)\n```", PAGE, re.DOTALL)
    recipe = load(*shlex.split(shown.replace("\\\n", " "))).recipe
    assert recipe.bm25 is None and [
        str(source.file) for source in recipe.sources if source.kind == "ranking"
    ] == ["bm25.train.negatives.trec"]
    for name in re.findall(
        r"[\w-]+", re.search(r"medquad/(rand, .*?) need `bm25=null` alone", PAGE)[1].replace(" and ", ", ")
    ):
        assert load(f"medquad/{name}", "bm25=null").recipe.bm25 is None
