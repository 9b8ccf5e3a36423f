"""Published scores of the methods of a recipe set, from papers and other sources, as its `_published.yaml`
lists them."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from pyserini_ance.recipe.components import Settings, did_you_mean
from pyserini_ance.recipe.evaluation_settings import Score, canonical_name
from pyserini_ance.recipe.load import read_settings, read_yaml

FILE = "_published.yaml"
EXACT_INDEX = "IndexFlatIP"  # exact search, as Faiss and the papers call it
MILLISECONDS = "mean ms"


class Section(StrEnum):
    """The tables of a set: results tables, and what papers report besides; the value is its heading."""

    RESULTS = ""
    INDEXES = "By the index that searched (`final_evaluation.indexes`):"
    JUDGED = "Unjudged documents, and documents shared with BM25's ranking (of the rankings that runs keep):"
    RERANKED = "Reranked (`rerank`), with the milliseconds per query of search and reranking:"
    ANSWERS = "Answers of a reader (`answer`):"
    FORGETTING = "Training queries that rank worse after an interval of training than before:"


# The sections of measures that results tables lack, by pattern.
SECTIONS = {
    r"(Hole|Overlap)@[1-9]\d*": Section.JUDGED,
    "EM": Section.ANSWERS,
    "forgotten": Section.FORGETTING,
}


def section_of(measure: str) -> Section | None:
    """The section of a measure that results tables lack; None for a measure of results tables."""
    return next((section for names, section in SECTIONS.items() if re.fullmatch(names, measure)), None)


def _measure(name: str) -> str:
    return name if section_of(name) else canonical_name(name)


Figures = dict[Annotated[str, AfterValidator(_measure)], Score]  # the scores of a split, by measure


class PublishedRow(BaseModel):
    """The scores that one source reports for one model.

    `model` (key `as`) is the source's name for it, `method` the name of the recipe here, None if there is no
    recipe. Keys that are not listed here are splits.
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    __pydantic_extra__: dict[str, Figures]

    method: str | None = Field(None, min_length=1)
    model: str = Field(alias="as", min_length=1)
    source: str
    table: PositiveInt | None = None
    index: str | None = None
    """The index that searched, as a Faiss factory string or `IndexFlatIP`."""
    reranker: str | None = None
    """The reranker, and the number of documents that it reranked."""
    milliseconds: PositiveFloat | None = None
    """Latency: search and reranking of a query."""
    interval: str | None = None
    """The stage, or the interval `STAGE-STEP to STAGE-STEP`, of figures of forgetting."""

    @property
    def figures(self) -> dict[str, Figures]:
        """The scores by split and measure."""
        return self.model_extra or {}

    @property
    def by_section(self) -> dict[Section, dict[tuple[str, str], float]]:
        """The scores by section, then by split and measure."""
        own = Section.INDEXES if self.index else Section.RESULTS
        own = Section.RERANKED if self.reranker or self.milliseconds else own
        sections: dict[Section, dict[tuple[str, str], float]] = {}
        for split, scores in self.figures.items():
            for measure, value in scores.items():
                sections.setdefault(section_of(measure) or own, {})[split, measure] = value
            if self.milliseconds:
                sections.setdefault(own, {})[split, MILLISECONDS] = self.milliseconds
        return sections

    def part(self, section: Section) -> str | None:
        """What the row is about in a section that has several for a recipe."""
        parts = {
            Section.INDEXES: self.index,
            Section.RERANKED: self.reranker,
            Section.FORGETTING: self.interval,
        }
        return parts.get(section)

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
    return read_settings(Published, read_yaml(path.read_bytes(), str(path)), str(path))


def _problem(position: int, key: str, message: str, value: str) -> InitErrorDetails:
    return InitErrorDetails(
        type=PydanticCustomError("published", "{message}", {"message": message}),
        loc=("rows", position, key),
        input=value,
    )
