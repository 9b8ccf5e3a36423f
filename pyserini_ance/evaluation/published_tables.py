"""The results table of a recipe set: what its runs measured, what its recipes expect, and what sources have
published."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from pyserini_ance.evaluation.tables import (
    BM25,
    BM25_RM3,
    UNTRAINED,
    MeasuredRow,
    SplitMeasure,
    as_csv,
    find_runs,
    group_alike,
    mean_range,
    read_measured,
    table,
    values_by_column,
)
from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.evaluation_settings import Expect
from pyserini_ance.recipe.find import find_set, recipes_in
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.published_figures import (
    COMMANDS,
    FILE,
    Published,
    PublishedRow,
    command_of,
    read_published,
)
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_json, write_whole

# Rows without training, by their method in published rows, where `bm25` is the recipe that trains on BM25
# negatives.
METHODS = {"bm25-search": BM25, "bm25-search+rm3": BM25_RM3, "untrained": UNTRAINED}
COLUMNS = ("recipe", "figures", "source", "runs")
RECORD_COLUMNS = (*COLUMNS, "split", "measure", "value", "lowest", "highest", "difference")


@dataclass(frozen=True)
class Row:
    """One row of the table.

    `figures` is `expected`, `measured`, or the name of a published model. `values` has one value for each
    run, `differences` the difference of their mean to the expected score. `method` is None for a system
    without a recipe.
    """

    method: str | None
    figures: str
    source: str | None = None
    runs: int | None = None
    values: Mapping[SplitMeasure, Sequence[float]] = field(default_factory=dict)
    differences: Mapping[SplitMeasure, float] = field(default_factory=dict)

    def cells(self) -> dict[str, Any]:
        scores = {" ".join(key): self._text(key, values) for key, values in self.values.items()}
        return self._head() | {"system": self.figures} | scores

    def records(self) -> Iterator[dict[str, Any]]:
        """One record for each score, with every digit."""
        for (split, measure), values in self.values.items():
            figure = {
                "value": fmean(values),
                "lowest": min(values),
                "highest": max(values),
                "difference": self.differences.get((split, measure)),
            }
            yield self._head() | {"split": split, "measure": measure} | figure

    def _head(self) -> dict[str, Any]:
        return dict(zip(COLUMNS, (self.method, self.figures, self.source, self.runs), strict=True))

    def _text(self, key: SplitMeasure, values: Sequence[float]) -> str:
        text = mean_range(values) if self.runs else _as_published(values[0])
        return f"{text}, {self.differences[key]:+.3f}" if key in self.differences else text


@dataclass(frozen=True)
class PublishedTable:
    """The table of a recipe set; `expects` is by recipe, `skipped` has a line for each run that is not in the
    table."""

    published: Published
    expects: Mapping[str, Expect]
    measured: Sequence[MeasuredRow]
    skipped: Sequence[str] = ()

    @classmethod
    def of(cls, name: str, runs: Path) -> "PublishedTable":
        """The table of a set, given its folder or name, from the run directories in `runs`, including those
        of grids.

        Raises FileNotFoundError if there is no such set, ValueError for a set without recipes, for a
        malformed `_published.yaml`, and for a published method that is not a recipe.
        """
        folder = find_set(name)
        published = read_published(folder)
        recipes = [load(path).recipe for path in recipes_in(folder)]
        expects = {recipe.name: recipe.expect for recipe in recipes}
        if not expects:
            raise ValueError(
                f"{folder} has no recipes (files *.yaml whose names do not begin with _); pass a folder "
                "with recipes"
            )
        finished, others = find_runs(
            runs, lambda recipe: recipe in expects or recipe.rpartition("/")[0] == folder.resolve().name
        )
        measured: list[MeasuredRow] = []
        skipped = [f"skipped: {run} holds {RunDir(run).describe()}" for run in others]
        for run in finished:
            try:
                measured += read_measured(run, str(run.relative_to(runs)))
            except ValueError as error:  # perhaps of another version
                skipped.append(f"skipped: {run} cannot be read: {error}")
        published_table = cls(published, expects, measured, skipped)
        published_table._check_methods(folder / FILE)
        return published_table

    def _check_methods(self, path: Path) -> None:
        """Raise ValueError if a published row's method is not a recipe."""
        methods = [*METHODS, *self._names()]
        for position, row in enumerate(self.published.rows):
            if row.method is not None and row.method not in methods:
                raise ValueError(
                    f"{path} is not valid:\n  rows.{position}.method: no recipe of that name"
                    f"{did_you_mean(row.method, methods)}; remove `method` for a system without a recipe, "
                    f"got {row.method!r}"
                )

    def rows(self) -> list[Row]:
        """All rows: by method, the expected scores, the measured ones, and those of each source; then other
        systems.

        Methods with published rows come first.
        """
        names = self._names()
        methods = dict.fromkeys(
            [*(row.method for row in self.published.rows if row.method), *METHODS, *names]
        )
        rows = [
            row for method in methods for row in self._rows_of(method, names.get(method, METHODS.get(method)))
        ]
        return [*rows, *(_published_row(row) for row in self.published.rows if row.method is None)]

    def as_markdown(self) -> str:
        """The tables of recipes, of other systems and of each command with measures of its own; sources;
        skipped runs."""
        rows = self.rows()
        published = [row for row in rows if row.values and not row.runs]
        sections = [
            _section("", [row for row in rows if row.method], COLUMNS),
            _section(
                "Systems without a recipe here:",
                [row for row in rows if not row.method],
                ("system", "source"),
            ),
            *(
                _section(f"Measured by `{by}`:", published, ("recipe", "figures", "source"), by)
                for by in COMMANDS.values()
            ),
            "\n".join(
                [*(f"- {name}: {source}" for name, source in self.published.sources.items()), *self.skipped]
            ),
        ]
        return "\n\n".join(filter(None, sections))

    def records(self) -> list[dict[str, Any]]:
        """One record for each score of the table, by RECORD_COLUMNS."""
        rows = self.rows()
        columns = _score_columns([row for row in rows if row.method])
        return [
            record
            for row in rows
            for record in row.records()
            if not row.runs or (record["split"], record["measure"]) in columns
        ]

    def write(self, path: Path) -> None:
        """Write Markdown, or the records as JSON or CSV, by the file's ending.

        Raises ValueError for another ending.
        """
        match path.suffix:
            case ".md":
                write_whole(path, self.as_markdown() + "\n")
            case ".json":
                write_json(path, {"sources": self.published.sources, "figures": self.records()})
            case ".csv":
                write_whole(path, as_csv(self.records(), RECORD_COLUMNS))
            case _:
                raise ValueError(
                    f"{path}: a table is written as .md, .json or .csv; give the file one of these endings"
                )

    def _names(self) -> dict[str, str]:
        """The names of the set's recipes and of the runs' recipes, by their method in published rows."""
        return {
            name.rpartition("/")[2]: name
            for name in [*self.expects, *(one.recipe for one in self.measured if one.config_hash)]
        }

    def _rows_of(self, method: str, name: str | None) -> Iterator[Row]:
        """The rows of one method. `name` is the recipe's or that of the row without training; None if there
        is neither."""
        expected = _flat(self.expects.get(name, {})) if name else {}
        if expected:
            yield Row(method, "expected", "recipe", values={key: [value] for key, value in expected.items()})
        published = [row for row in self.published.rows if row.method == method]
        groups = group_alike([row for row in self.measured if row.recipe == name])
        for group in groups:
            yield _measured_row(method, group, expected, len(groups) > 1)
        if not groups and (name in self.expects or (name and published)):
            yield Row(method, "measured")
        for row in published:
            yield _published_row(row)


def _published_row(row: PublishedRow) -> Row:
    return Row(
        row.method, row.model, row.where(), values={key: [value] for key, value in _flat(row.figures).items()}
    )


def _section(heading: str, rows: Sequence[Row], head: Sequence[str], command: str | None = None) -> str:
    """A table of the rows with measures of `command`, or of results tables if it is None; "" if no row has
    any.

    Rows of runs, and rows that are not measured yet, are always shown.
    """
    keys = _score_columns(rows, command)
    cells = [
        row.cells() for row in rows if row.runs or not row.values or not row.values.keys().isdisjoint(keys)
    ]
    if not cells:
        return ""
    return "\n\n".join(filter(None, [heading, table(cells, [*head, *map(" ".join, keys)])]))


def _measured_row(
    method: str, group: Sequence[MeasuredRow], expected: Mapping[SplitMeasure, float], has_others: bool
) -> Row:
    values, config_hash = values_by_column(group), group[0].config_hash
    label = f"measured [{config_hash[:6]}]" if has_others and config_hash else "measured"
    runs = group[0].run if len(group) == 1 else f"{group[0].run} and {len(group) - 1} more"
    differences = {key: fmean(of_key) - expected[key] for key, of_key in values.items() if key in expected}
    return Row(method, label, runs, len(group), values, differences)


def _score_columns(rows: Sequence[Row], command: str | None = None) -> list[SplitMeasure]:
    """The columns with measures of `command`, or of results tables if it is None, grouped by split.

    Columns are those with published or expected scores; if there are none, those with measured ones.
    """
    keys = [(key, row.runs) for row in rows for key in row.values if command_of(key[1]) == command]
    reported = [key for key, runs in keys if not runs] or [key for key, _ in keys]
    splits = list(dict.fromkeys(split for split, _ in reported))
    return sorted(dict.fromkeys(reported), key=lambda key: splits.index(key[0]))


def _flat(figures: Mapping[str, Mapping[str, float]]) -> dict[SplitMeasure, float]:
    return {
        (split, measure): value
        for split, by_measure in figures.items()
        for measure, value in by_measure.items()
    }


def _as_published(value: float) -> str:
    """The score with three decimals, as papers print it, or with four if it has more."""
    return f"{value:.3f}" if round(value, 3) == value else f"{value:.4f}"
