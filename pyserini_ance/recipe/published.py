"""Published: the figures that papers and others give of the methods of a set, as its `_published.yaml` lists them."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from pyserini_ance.recipe.expect import Value
from pyserini_ance.recipe.load import explain, read_yaml
from pyserini_ance.recipe.measure import as_in_tables
from pyserini_ance.recipe.parts import Settings, did_you_mean

FILE = "_published.yaml"
# What papers measure and closing tables have not, by the names that these commands have for it.
COMMANDS = {r"(Hole|Overlap)@[1-9]\d*": "evaluate --holes --overlap", "EM": "answer", "forgotten": "compare --forgetting"}


def command_of(measure: str) -> str | None:
    """The command that measures it; None for what closing tables have."""
    return next((command for names, command in COMMANDS.items() if re.fullmatch(names, measure)), None)


def _measure(name: str) -> str:
    return name if command_of(name) else as_in_tables(name)


Figures = dict[Annotated[str, AfterValidator(_measure)], Value]  # by measure, of a split


class PublishedRow(BaseModel):
    """What one source says of one model: `model` is the name that it gives, `method` that of recipes here, None for a system that has none.
    All other keys are splits.
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    __pydantic_extra__: dict[str, Figures]

    method: str | None = Field(None, min_length=1)
    model: str = Field(alias="as", min_length=1)
    source: str
    table: PositiveInt | None = None

    @property
    def figures(self) -> dict[str, Figures]:
        """By split and measure."""
        return self.model_extra

    @property
    def key(self) -> tuple[str, int | None, str]:
        return self.source, self.table, self.model

    def where(self) -> str:
        return self.source if self.table is None else f"{self.source}, table {self.table}"


class Published(Settings):
    """Rows of published tables; `sources` says what their sources are. Sources that disagree have a row each."""

    sources: dict[str, str] = {}
    rows: tuple[PublishedRow, ...] = ()

    @model_validator(mode="after")
    def rows_are_of_sources(self):
        first: dict[tuple, int] = {}
        problems = []
        for place, row in enumerate(self.rows):
            if row.source not in self.sources:
                message = f"no source of that name{did_you_mean(row.source, self.sources)}; sources: {', '.join(self.sources) or 'none'}"
                problems.append(_problem(place, "source", message, row.source))
            if not row.figures:
                problems.append(_problem(place, "as", "a row without figures; expected splits, for example dev: {RR@10: 0.33}", row.model))
            if first.setdefault(row.key, place) != place:
                message = f"rows.{first[row.key]} is of the same model, source and table; join the two, or give one another name"
                problems.append(_problem(place, "as", message, row.model))
        if problems:
            raise ValidationError.from_exception_data(type(self).__name__, problems)
        return self


def read_published(folder: Path) -> Published:
    """That of the set in `folder`; empty where it has none. Raises ValueError naming file, key and value."""
    path = folder / FILE
    if not path.exists():
        return Published()
    try:
        return Published.model_validate(read_yaml(path.read_bytes(), str(path)))
    except ValidationError as error:
        raise ValueError("\n".join([f"{path} is not valid:", *(explain(problem, path, {}) for problem in error.errors())])) from None


def _problem(place: int, key: str, message: str, value: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError("published", "{message}", {"message": message}), loc=("rows", place, key), input=value)
