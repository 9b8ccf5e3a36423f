"""docs/recipe-reference.md is current, and the generator puts types and defaults into words."""

from pathlib import Path
from typing import Literal

import pytest
from pydantic import Field, PositiveInt

from pyserini_ance.recipe.components import Settings
from pyserini_ance.recipe.reference import default_of, reference, type_of

PAGE = Path(__file__).parents[2] / "docs" / "recipe-reference.md"


class Inner(Settings):
    size: PositiveInt = 1


class Example(Settings):
    mode: Literal["a", "b"] = "a"
    count: PositiveInt | None = None
    rate: float = Field(gt=0, le=1)
    scale: float | None = Field(default=None, gt=0)
    names: tuple[str, ...] = ()
    inner: Inner = Inner()
    parts: dict[str, Inner] = Field(default={}, min_length=1)
    offset: int = Field(default=0, ge=0, description="Steps before the first.")


@pytest.mark.parametrize(
    ("name", "expected_type", "expected_default"),
    [
        ("mode", "`a` or `b`", "`a`"),
        ("count", "integer >= 1 or `null`", "`null`"),
        ("rate", "number > 0 and <= 1", "required"),
        ("scale", "number > 0 or `null`", "`null`"),
        ("names", "list of string", "`[]`"),
        ("inner", "[Inner](#inner)", "its defaults"),
        ("parts", "mapping of string to [Inner](#inner), not empty", "`{}`"),
        ("offset", "integer >= 0", "`0`"),
    ],
)
def test_types_and_defaults_are_in_words(name, expected_type, expected_default):
    field = Example.model_fields[name]
    assert (type_of(field), default_of(field)) == (expected_type, expected_default)


def test_the_page_is_current():
    message = "run: python -m pyserini_ance.recipe.reference > docs/recipe-reference.md"
    assert PAGE.read_text(encoding="utf-8") == reference(), message
