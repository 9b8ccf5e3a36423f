"""What a recipe expects beside what its run has measured."""

from collections.abc import Mapping

from pyserini_ance.measures.table import table
from pyserini_ance.recipe.models import Recipe


def beside_expected(recipe: Recipe, row: Mapping) -> str:
    """A table of the measures of the last stage's row that the recipe expects, by what tables call them; empty where it expects none."""
    columns = recipe.test.columns
    expected = {columns.get((split, measure)): value for split, figures in recipe.expect.items() for measure, value in figures.items()}
    rows = [
        {row["row"]: column, "expected": value, "measured": row[column], "difference": f"{row[column] - value:+.4f}"}
        for column, value in expected.items()
        if column in row
    ]
    return table(rows, [row["row"], "expected", "measured", "difference"]) if rows else ""
