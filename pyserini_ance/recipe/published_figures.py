"""Published scores of the methods of a recipe set, from papers and other sources, as its `_published.yaml`
lists them."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from pyserini_ance.recipe.components import Settings, did_you_mean
from pyserini_ance.recipe.evaluation_settings import Score, canonical_name
from pyserini_ance.recipe.load import explain, read_yaml

FILE = "_published.yaml"
# Measures that papers report and results tables lack, by pattern, and the command that computes each.
COMMANDS = {
    r"(Hole|Overlap)@[1-9]\d*": "evaluate --holes --overlap",
    "EM": "answer",
    "forgotten": "compare --forgetting",
}


def command_of(measure: str) -> str | None:
    """The command that computes a measure; None for a measure of results tables."""
    return next((command for names, command in COMMANDS.items() if re.fullmatch(names, measure)), None)


def _measure(name: str) -> str:
    return name if command_of(name) else canonical_name(name)


Figures = dict[Annotated[str, AfterValidator(_measure)], Score]  # the scores of a split, by measure


class PublishedRow(BaseModel):
    """The scores that one source reports for one model.

    `model` (key `as`) is the source's name for it, `method` the name of the recipe here, None if there is no
    recipe. All other keys are splits.
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    __pydantic_extra__: dict[str, Figures]

    method: str | None = Field(None, min_length=1)
    model: str = Field(alias="as", min_length=1)
    source: str
    table: PositiveInt | None = None

    @property
    def figures(self) -> dict[str, Figures]:
        """The scores by split and measure."""
        return self.model_extra or {}

    @property
    def key(self) -> tuple[str, int | None, str]:
        return self.source, self.table, self.model

    def where(self) -> str:
        return self.source if self.table is None else f"{self.source}, table {self.table}"


class Published(Settings):
    """Rows of published tables, and a description of each of their `sources`.

    Sources that disagree have one row each.
    """

    sources: dict[str, str] = Field(default={})
    rows: tuple[PublishedRow, ...] = ()

    @model_validator(mode="after")
    def check_rows(self) -> "Published":
        first: dict[tuple[str, int | None, str], int] = {}
        problems = []
        for position, row in enumerate(self.rows):
            if row.source not in self.sources:
                message = (
                    f"no source of that name{did_you_mean(row.source, self.sources)}; "
                    f"sources: {', '.join(self.sources) or 'none'}"
                )
                problems.append(_problem(position, "source", message, row.source))
            if not row.figures:
                message = "a row without scores; expected splits, for example dev: {RR@10: 0.33}"
                problems.append(_problem(position, "as", message, row.model))
            if first.setdefault(row.key, position) != position:
                message = (
                    f"rows.{first[row.key]} has the same model, source and table; "
                    "merge the two, or give one another name"
                )
                problems.append(_problem(position, "as", message, row.model))
        if problems:
            raise ValidationError.from_exception_data(type(self).__name__, problems)
        return self


def read_published(folder: Path) -> Published:
    """The published scores of the set in `folder`; empty if there are none.

    Raises ValueError naming file, key and value.
    """
    path = folder / FILE
    if not path.exists():
        return Published()
    try:
        return Published.model_validate(read_yaml(path.read_bytes(), str(path)))
    except ValidationError as error:
        raise ValueError(
            "\n".join([f"{path} is not valid:", *(explain(problem, path, {}) for problem in error.errors())])
        ) from None


def _problem(position: int, key: str, message: str, value: str) -> InitErrorDetails:
    return InitErrorDetails(
        type=PydanticCustomError("published", "{message}", {"message": message}),
        loc=("rows", position, key),
        input=value,
    )
