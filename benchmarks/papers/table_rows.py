"""Rows of the papers' tables, as cells and as records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from benchmarks.papers.measured import SplitMeasure
from pyserini_ance.evaluation.tables import mean_range, table
from pyserini_ance.recipe.published_figures import MILLISECONDS, Section

COLUMNS = ("recipe", "figures", "source", "runs")
RECORD_COLUMNS = (
    "recipe",
    "part",
    *COLUMNS[1:],
    "split",
    "measure",
    "value",
    "lowest",
    "highest",
    "difference",
)
# What the rows of a section are about, where a recipe has several.
PARTS = {
    Section.INDEXES: "index",
    Section.RERANKED: "reranker",
    Section.ANSWERS: "reader",
    Section.FORGETTING: "interval",
}


@dataclass(frozen=True)
class Row:
    """One row of a table of the section.

    `figures` is `expected`, `measured`, or the name of a published model. `values` has one value for each
    run, `differences` the difference of their mean to the expected score; `absent` says in words why a value
    is missing. `method` is None for a system without a recipe.
    """

    method: str | None
    figures: str
    source: str | None = None
    runs: int | None = None
    values: Mapping[SplitMeasure, Sequence[float]] = field(default_factory=dict)
    differences: Mapping[SplitMeasure, float] = field(default_factory=dict)
    section: Section = Section.RESULTS
    part: str | None = None
    absent: Mapping[SplitMeasure, str] = field(default_factory=dict)

    def cells(self) -> dict[str, Any]:
        scores = {" ".join(key): self._text(key, values) for key, values in self.values.items()}
        absent = {" ".join(key): text for key, text in self.absent.items()}
        return (
            self._head() | {PARTS.get(self.section, ""): self.part, "system": self.figures} | absent | scores
        )

    def records(self) -> Iterator[dict[str, Any]]:
        """One record for each score, with every digit."""
        for (split, measure), values in self.values.items():
            figure = {
                "value": fmean(values),
                "lowest": min(values),
                "highest": max(values),
                "difference": self.differences.get((split, measure)),
            }
            yield self._head() | {"part": self.part, "split": split, "measure": measure} | figure

    def _head(self) -> dict[str, Any]:
        return dict(zip(COLUMNS, (self.method, self.figures, self.source, self.runs), strict=True))

    def _text(self, key: SplitMeasure, values: Sequence[float]) -> str:
        if key[1] == MILLISECONDS:
            return f"{fmean(values):.0f}"
        text = mean_range(values) if self.runs else _as_published(values[0])
        return f"{text}, {self.differences[key]:+.3f}" if key in self.differences else text


def head_of(section: Section) -> list[str]:
    """The first columns of a section's table."""
    return [COLUMNS[0], *([PARTS[section]] if section in PARTS else []), *COLUMNS[1:]]


def table_of(heading: str, rows: Sequence[Row], head: Sequence[str]) -> str:
    """A table of the rows; "" if no row has any score.

    Rows of runs, and rows that are not measured yet, are always shown.
    """
    keys = score_columns(rows)
    cells = [
        row.cells() for row in rows if row.runs or not row.values or not row.values.keys().isdisjoint(keys)
    ]
    if not cells:
        return ""
    return "\n\n".join(filter(None, [heading, table(cells, [*head, *map(" ".join, keys)])]))


def score_columns(rows: Sequence[Row]) -> list[SplitMeasure]:
    """The columns of the scores, grouped by split.

    Columns are those with published or expected scores; if there are none, those with measured ones.
    """
    keys = [(key, row.runs) for row in rows for key in [*row.values, *row.absent]]
    reported = [key for key, runs in keys if not runs] or [key for key, _ in keys]
    splits = list(dict.fromkeys(split for split, _ in reported))
    return sorted(dict.fromkeys(reported), key=lambda key: splits.index(key[0]))


def _as_published(value: float) -> str:
    """The score with three decimals, as papers print it, or with four if it has more."""
    return f"{value:.3f}" if round(value, 3) == value else f"{value:.4f}"
