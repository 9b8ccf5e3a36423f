"""The results tables of a recipe set: what its runs measured, what its recipes expect, and what sources have
published."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.papers.derived_measures import Derivation, downstream_folders
from benchmarks.papers.measured import (
    MeasuredRow,
    SplitMeasure,
    find_runs,
    group_alike,
    read_measured,
    values_by_column,
)
from benchmarks.papers.table_rows import COLUMNS, RECORD_COLUMNS, Row, head_of, score_columns, table_of
from pyserini_ance.evaluation.expected import NO_EXPECTATION
from pyserini_ance.evaluation.tables import BM25, BM25_RM3, UNTRAINED, as_csv
from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.evaluation_settings import Expect
from pyserini_ance.recipe.find import find_set, recipes_in
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.published_figures import FILE, Published, PublishedRow, Section, read_published
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_json, write_whole

MEASURED = (
    "- measured: mean (lowest-highest) over runs, then the difference from the expected score; a label in "
    "brackets tells the configurations of a recipe apart"
)
# Rows without training, by their method in published rows, where `bm25` is the recipe that trains on BM25
# negatives.
METHODS = {"bm25-search": BM25, "bm25-search+rm3": BM25_RM3, "untrained": UNTRAINED}


@dataclass(frozen=True)
class PublishedTable:
    """The tables of a recipe set; `expects` is by recipe, `notes` has a line for each run that is not in the
    tables, or lacks a measure."""

    published: Published
    expects: Mapping[str, Expect]
    measured: Sequence[MeasuredRow]
    notes: Sequence[str] = ()

    @classmethod
    def of(cls, name: str, runs: Path) -> "PublishedTable":
        """The tables of a set, given its folder or name, from the run directories in `runs`, including those
        of grids.

        Raises FileNotFoundError if there is no such set, ValueError for a set without recipes, for a
        malformed `_published.yaml`, and for a published method that is not a recipe.
        """
        folder = find_set(name)
        published = read_published(folder)
        recipes = {recipe.name: recipe for recipe in (load(path).recipe for path in recipes_in(folder))}
        if not recipes:
            raise ValueError(
                f"{folder} has no recipes (files *.yaml whose names do not begin with _); pass a folder "
                "with recipes"
            )
        finished, others = find_runs(
            runs, lambda recipe: recipe in recipes or recipe.rpartition("/")[0] == folder.resolve().name
        )
        notes = [f"skipped: {run} holds {RunDir(run).describe()}" for run in others]
        expects = {name: recipe.expect for name, recipe in recipes.items()}
        measured = _measured(runs, finished, recipes, published, notes)
        published_table = cls(published, expects, measured, notes)
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

    def rows(self, section: Section) -> list[Row]:
        """The rows of a section: by method, the expected scores, the measured ones, and those of each source;
        then other systems.

        Methods with published rows come first. Measured and published rows about one part are together.
        """
        names = self._names()
        methods = dict.fromkeys(
            [*(row.method for row in self.published.rows if row.method), *METHODS, *names]
        )
        rows = [
            row
            for method in methods
            for row in self._rows_of(section, method, names.get(method, METHODS.get(method)))
        ]
        return [*rows, *self._published_rows(section, None)]

    def as_markdown(self) -> str:
        """The tables of recipes, of other systems and of each further section; sources; notes."""
        results = self.rows(Section.RESULTS)
        sections = [
            table_of("", [row for row in results if row.method], COLUMNS),
            table_of(
                "Systems without a recipe here:",
                [row for row in results if not row.method],
                ("system", "source"),
            ),
            *(
                table_of(section, self.rows(section), head_of(section))
                for section in Section
                if section is not Section.RESULTS
            ),
            "\n".join(
                [
                    *(f"- {name}: {source}" for name, source in self.published.sources.items()),
                    *([MEASURED] if self.measured else []),
                    *self._variants(),
                    *self.notes,
                ]
            ),
        ]
        return "\n\n".join(filter(None, sections))

    def records(self) -> list[dict[str, Any]]:
        """One record for each score of the tables, by RECORD_COLUMNS."""
        records = []
        for section in Section:
            rows = self.rows(section)
            columns = score_columns([row for row in rows if row.method] or rows)
            records += [
                record
                for row in rows
                for record in row.records()
                if not row.runs or (record["split"], record["measure"]) in columns
            ]
        return records

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

    def _variants(self) -> list[str]:
        """A line for each configuration of a recipe that has no expected figures of it."""
        lines = (f"- [{row.config_hash[:6]}]: {NO_EXPECTATION} {row.variant}" for row in self._of_variants())
        return list(dict.fromkeys(lines))

    def _of_variants(self) -> Iterator[MeasuredRow]:
        return (row for row in self.measured if row.variant and self.expects.get(row.recipe))

    def _rows_of(self, section: Section, method: str, name: str | None) -> Iterator[Row]:
        """The rows of one method. `name` is the recipe's or that of the row without training; None if there
        is neither."""
        expected = _flat(self.expects.get(name, {})) if name and section is Section.RESULTS else {}
        if expected:
            yield Row(method, "expected", "recipe", values={key: [value] for key, value in expected.items()})
        published = self._published_rows(section, method)
        measured = [row for row in self.measured if row.recipe == name and row.section is section]
        for part in dict.fromkeys([*(row.part for row in published), *(row.part for row in measured)]):
            groups = group_alike([row for row in measured if row.part == part])
            for group in groups:
                yield _measured_row(method, group, expected, len(groups) > 1)
            if section is Section.RESULTS and not groups and name:
                yield Row(method, "measured")
            yield from (row for row in published if row.part == part)
        if section is Section.RESULTS and not published and not measured and name in self.expects:
            yield Row(method, "measured")

    def _published_rows(self, section: Section, method: str | None) -> list[Row]:
        return [
            _published_row(row, section)
            for row in self.published.rows
            if row.method == method and section in row.by_section
        ]


def _measured(
    runs: Path,
    finished: Sequence[Path],
    recipes: Mapping[str, Recipe],
    published: Published,
    notes: list[str],
) -> list[MeasuredRow]:
    """The rows of the finished runs; a run that cannot be read has a note instead."""
    wanted = dict.fromkeys(key for row in published.rows for key in _flat(row.figures))
    folders = downstream_folders(runs)
    measured: list[MeasuredRow] = []
    for run in finished:
        try:
            rows = read_measured(run, str(run.relative_to(runs)), recipes)
        except (ValueError, RuntimeError) as error:  # RuntimeError: of another version
            notes.append(f"skipped: {run} cannot be read: {error}")
            continue
        results = [row for row in rows if row.section is Section.RESULTS]
        measured += [*rows, *Derivation(RunDir(run), results, wanted, notes).all(folders)]
    return measured


def _published_row(row: PublishedRow, section: Section) -> Row:
    values = {key: [value] for key, value in row.by_section[section].items()}
    return Row(row.method, row.model, row.where(), values=values, section=section, part=row.part(section))


def _measured_row(
    method: str, group: Sequence[MeasuredRow], expected: Mapping[SplitMeasure, float], has_others: bool
) -> Row:
    values, first = values_by_column(group), group[0]
    is_variant = bool(expected and first.variant)
    has_label = first.config_hash and (has_others or is_variant)
    label = f"measured [{first.config_hash[:6]}]" if has_label else "measured"
    runs = first.run if len(group) == 1 else f"{first.run} and {len(group) - 1} more"
    differences = {
        key: fmean(of_key) - expected[key]
        for key, of_key in values.items()
        if key in expected and not is_variant
    }
    absent = {key: text for row in group for key, text in row.absent.items()}
    return Row(method, label, runs, len(group), values, differences, first.section, first.part, absent)


def _flat(figures: Mapping[str, Mapping[str, float]]) -> dict[SplitMeasure, float]:
    return {
        (split, measure): value
        for split, by_measure in figures.items()
        for measure, value in by_measure.items()
    }
