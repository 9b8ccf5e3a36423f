"""The papers' table of a set of recipes: what its runs measure, beside what recipes expect and what sources have published."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from pyserini_ance.measures.compare import BM25, BM25_RM3, UNTRAINED, spread
from pyserini_ance.measures.measured import Measured, Place, alike, find_runs, read_measured, together
from pyserini_ance.measures.table import as_csv, table
from pyserini_ance.recipe.expect import Expect
from pyserini_ance.recipe.find import find_set, recipes_of
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.parts import did_you_mean
from pyserini_ance.recipe.published import COMMANDS, FILE, Published, PublishedRow, command_of, read_published
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_json, write_whole

# Rows that need no training, by what published rows call them: `bm25` is a recipe there, the one that trains on its negatives.
METHODS = {"bm25-search": BM25, "bm25-search+rm3": BM25_RM3, "untrained": UNTRAINED}
COLUMNS = ("recipe", "figures", "source", "runs")
RECORD_COLUMNS = (*COLUMNS, "split", "measure", "value", "lowest", "highest", "difference")


@dataclass(frozen=True)
class Row:
    """`figures` says whose they are; `values` has one a run by place, and `differences` those of their means to what is expected.
    `method` is None for a system that has no recipe, whose name is then `figures`.
    """

    method: str | None
    figures: str
    source: str | None = None
    runs: int | None = None
    values: Mapping[Place, Sequence[float]] = field(default_factory=dict)
    differences: Mapping[Place, float] = field(default_factory=dict)

    def cells(self) -> dict:
        return self._about() | {"system": self.figures} | {" ".join(place): self._text(place, values) for place, values in self.values.items()}

    def records(self) -> Iterator[dict]:
        """A figure each, with every digit."""
        for (split, measure), values in self.values.items():
            figure = {"value": fmean(values), "lowest": min(values), "highest": max(values), "difference": self.differences.get((split, measure))}
            yield self._about() | {"split": split, "measure": measure} | figure

    def _about(self) -> dict:
        return dict(zip(COLUMNS, (self.method, self.figures, self.source, self.runs), strict=True))

    def _text(self, place: Place, values: Sequence[float]) -> str:
        text = spread(values) if self.runs else _as_published(values[0])
        return f"{text}, {self.differences[place]:+.3f}" if place in self.differences else text


@dataclass(frozen=True)
class PublishedTable:
    """`expects` by recipe; `left_out` says what of the runs is not in the table."""

    published: Published
    expects: Mapping[str, Expect]
    measured: Sequence[Measured]
    left_out: Sequence[str] = ()

    @classmethod
    def of(cls, name: str, runs: Path) -> "PublishedTable":
        """That of a set, by its folder or name, from the run directories in `runs`, grids' too.

        Raises FileNotFoundError when there is no such set, ValueError for one without recipes, with a malformed `_published.yaml`, or with
        one that names a method that is none.
        """
        folder = find_set(name)
        published, expects = read_published(folder), {recipe.name: recipe.expect for recipe in (load(path).recipe for path in recipes_of(folder))}
        if not expects:
            raise ValueError(f"{folder} has no recipes (files *.yaml whose names do not begin with _); name a folder that has")
        finished, others = find_runs(runs, lambda recipe: recipe in expects or recipe.rpartition("/")[0] == folder.resolve().name)
        measured, left_out = [], [f"left out: {run} holds {RunDir(run).describe()}" for run in others]
        for run in finished:
            try:
                measured += read_measured(run, str(run.relative_to(runs)))
            except ValueError as error:  # of another version, perhaps
                left_out.append(f"left out: {run} cannot be read: {error}")
        made = cls(published, expects, measured, left_out)
        known = [*METHODS, *made._names()]
        for place, row in enumerate(published.rows):
            if row.method not in (None, *known):
                message = f"no recipe of that name{did_you_mean(row.method, known)}; leave `method` out for a system that has none"
                raise ValueError(f"{folder / FILE} is not valid:\n  rows.{place}.method: {message}, got {row.method!r}")
        return made

    def rows(self) -> list[Row]:
        """By method, those of the published rows first: what is expected, what is measured, what each source says. Then the systems that
        have no recipe.
        """
        names = self._names()
        methods = dict.fromkeys([*(row.method for row in self.published.rows if row.method), *METHODS, *names])
        rows = [row for method in methods for row in self._rows_of(method, names.get(method, METHODS.get(method)))]
        return [*rows, *(_published_row(row) for row in self.published.rows if row.method is None)]

    def as_markdown(self) -> str:
        """The recipes' table, that of other systems, one for each command that measures what closing tables have not, the sources, and what
        was left out.
        """
        rows = self.rows()
        published = [row for row in rows if row.values and not row.runs]
        parts = [
            _part("", [row for row in rows if row.method], COLUMNS),
            _part("Systems without a recipe here:", [row for row in rows if not row.method], ("system", "source")),
            *(_part(f"Measured by `{by}`:", published, ("recipe", "figures", "source"), by) for by in COMMANDS.values()),
            "\n".join([*(f"- {name}: {source}" for name, source in self.published.sources.items()), *self.left_out]),
        ]
        return "\n\n".join(filter(None, parts))

    def records(self) -> list[dict]:
        """The table's figures, one each, by RECORD_COLUMNS."""
        rows = self.rows()
        columns = _places([row for row in rows if row.method])
        return [record for row in rows for record in row.records() if not row.runs or (record["split"], record["measure"]) in columns]

    def write(self, path: Path) -> None:
        """As Markdown, or its records as JSON or CSV, by the file's ending. Raises ValueError for another."""
        match path.suffix:
            case ".md":
                write_whole(path, self.as_markdown() + "\n")
            case ".json":
                write_json(path, {"sources": self.published.sources, "figures": self.records()})
            case ".csv":
                write_whole(path, as_csv(self.records(), RECORD_COLUMNS))
            case _:
                raise ValueError(f"{path}: a table is written as .md, .json or .csv; give the file one of these endings")

    def _names(self) -> dict[str, str]:
        """Of the recipes here and of runs, by what published rows call them."""
        return {name.rpartition("/")[2]: name for name in [*self.expects, *(one.recipe for one in self.measured if one.variant)]}

    def _rows_of(self, method: str, name: str | None) -> Iterator[Row]:
        """`name` is that of the recipe, or of the row that needs no training; None: there is neither here."""
        expected = _by_place(self.expects.get(name, {}))
        if expected:
            yield Row(method, "expected", "recipe", values={place: [value] for place, value in expected.items()})
        of_sources = [row for row in self.published.rows if row.method == method]
        groups = alike([one for one in self.measured if one.recipe == name])
        for group in groups:
            yield _measured_row(method, group, expected, len(groups) > 1)
        if not groups and (name in self.expects or (name and of_sources)):
            yield Row(method, "measured")
        for row in of_sources:
            yield _published_row(row)


def _published_row(row: PublishedRow) -> Row:
    return Row(row.method, row.model, row.where(), values={place: [value] for place, value in _by_place(row.figures).items()})


def _part(heading: str, rows: Sequence[Row], about: Sequence[str], by: str | None = None) -> str:
    """A table of the rows that have what the command `by` measures, or closing tables; empty where none has. Rows of runs, and those that
    are still to be measured, stay.
    """
    places = _places(rows, by)
    cells = [row.cells() for row in rows if row.runs or not row.values or not row.values.keys().isdisjoint(places)]
    return "\n\n".join(filter(None, [heading, table(cells, [*about, *map(" ".join, places)])])) if cells else ""


def _measured_row(method: str, group: Sequence[Measured], expected: Mapping[Place, float], has_others: bool) -> Row:
    values, variant = together(group), group[0].variant
    what = f"measured [{variant[:6]}]" if has_others and variant else "measured"
    runs = group[0].run if len(group) == 1 else f"{group[0].run} and {len(group) - 1} more"
    differences = {place: fmean(found) - expected[place] for place, found in values.items() if place in expected}
    return Row(method, what, runs, len(group), values, differences)


def _places(rows: Sequence[Row], by: str | None = None) -> list[Place]:
    """The columns that the command `by` measures, or closing tables, those of a split together: what is published or expected; where
    nothing is, what is measured.
    """
    fitting = [(place, row.runs) for row in rows for place in row.values if command_of(place[1]) == by]
    named = [place for place, runs in fitting if not runs] or [place for place, _ in fitting]
    splits = list(dict.fromkeys(split for split, _ in named))
    return sorted(dict.fromkeys(named), key=lambda place: splits.index(place[0]))


def _by_place(figures: Mapping[str, Mapping[str, float]]) -> dict[Place, float]:
    return {(split, measure): value for split, of_split in figures.items() for measure, value in of_split.items()}


def _as_published(value: float) -> str:
    """With three decimals, as papers have it, or with four where it has more."""
    return f"{value:.3f}" if round(value, 3) == value else f"{value:.4f}"
