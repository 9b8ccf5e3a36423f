"""Expect: the figures that a recipe should come to, published ones or those of an earlier run."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from pyserini_ance.recipe.measure import MeasureName

Split = Annotated[str, Field(min_length=1)]
Value = Annotated[float, Field(ge=0, le=1)]


def _are_of_splits(value: Any) -> Any:
    if value is None:  # of a recipe that extends one whose figures are not its own
        return {}
    if not isinstance(value, dict) or not all(isinstance(figures, dict) for figures in value.values()):
        raise ValueError("expected a value for each measure of a split, for example {dev: {RR@10: 0.33}}")
    return value


Figures = dict[MeasureName, Value]  # by measure, of a split

# split -> measure -> value; splits that the recipe itself does not test, too.
Expect = Annotated[dict[Split, Figures], BeforeValidator(_are_of_splits)]
