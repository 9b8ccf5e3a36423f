"""The results tables of a recipe set: what its runs measured, what its recipes expect, and what sources have
published."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.papers.measured import METHODS, read_measured
from benchmarks.papers.published import FILE, MILLISECONDS, PARTS, Section, read_published
from pyserini_ance.evaluation.tables import mean_range, table
from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.load import SHIPPED, load, shipped
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.storage.files import write_json, write_whole

HEAD = ("recipe", "figures", "source", "runs")
FIGURE = ("recipe", "part", "figures", "source", "runs", "split", "measure")
STATISTICS = ("value", "lowest", "highest", "difference")
MEASURED = (
    "- measured: mean (lowest-highest) over runs, then the difference from the expected score; a label in "
    "brackets tells the configurations of a recipe apart"
)


@dataclass(frozen=True)
class Tables:
    """The tables of a set. `figures`: one line for each score, in the order of the rows of its `section`;
    `row` numbers these, `text` is the cell. A row without scores has one line without `split`."""

    sources: Mapping[str, str]
    figures: pd.DataFrame
    notes: Sequence[str]

    def as_markdown(self) -> str:
        """The tables of recipes, of other systems and of each further section; sources; notes."""
        results = self._of(Section.RESULTS)
        parts = [
            _table("", results[results.recipe != ""], HEAD),
            _table("Systems without a recipe here:", results[results.recipe == ""], ("system", "source")),
        ]
        for section in list(Section)[1:]:
            part = [PARTS[section]] if section in PARTS else []
            parts.append(_table(section, self._of(section), [HEAD[0], *part, *HEAD[1:]]))
        lines = [f"- {name}: {source}" for name, source in self.sources.items()]
        lines += [MEASURED] if (self.figures.runs > 0).any() else []
        return "\n\n".join(filter(None, [*parts, "\n".join([*lines, *self.notes])]))

    def records(self) -> pd.DataFrame:
        """The scores of the tables, with every digit."""
        kept = []
        for section in Section:
            lines = self._of(section)
            columns = _score_columns(lines[lines.recipe != ""] if (lines.recipe != "").any() else lines)
            keys = pd.Series(list(zip(lines.split, lines.measure, strict=True)), lines.index, object)
            kept.append(lines[lines.value.notna() & ((lines.runs == 0) | keys.isin(columns))])
        found = pd.concat(kept)[[*FIGURE, *STATISTICS]].replace({"": None})
        return found.assign(runs=found.runs.replace(0, pd.NA).astype("Int64"))

    def write(self, path: Path) -> None:
        """Write Markdown, or the records as JSON or CSV, by the file's ending.

        Raises ValueError for another ending.
        """
        if path.suffix == ".md":
            write_whole(path, self.as_markdown() + "\n")
        elif path.suffix == ".json":
            figures = self.records().astype(object)
            records = figures.where(figures.notna(), None).to_dict("records")
            write_json(path, {"sources": self.sources, "figures": records})
        elif path.suffix == ".csv":
            write_whole(path, self.records().to_csv(index=False))
        else:
            raise ValueError(
                f"{path}: a table is written as .md, .json or .csv; give the file such an ending"
            )

    def _of(self, section: Section) -> pd.DataFrame:
        return self.figures[self.figures.section == section]


def read_tables(name: str, runs: Path) -> Tables:
    """The tables of a set, given its folder or name, from the run directories in `runs`, including grids.

    Raises FileNotFoundError if there is no such set, ValueError for a set without recipes, for a malformed
    `_published.yaml`, and for a published method that is not a recipe.
    """
    folder = _find_set(name)
    published = read_published(folder)
    files = [path for path in sorted(folder.glob("*.yaml")) if not path.name.startswith("_")]
    recipes = {recipe.name: recipe for recipe in (load(path) for path in files)}
    if not recipes:
        raise ValueError(
            f"{folder} has no recipes (files *.yaml whose names do not begin with _); pass another folder"
        )
    wanted = dict.fromkeys((s, m) for row in published.rows for s, of in row.figures.items() for m in of)
    measured, notes = read_measured(runs, recipes, folder.resolve().name, wanted)
    named = {each.rpartition("/")[2]: recipe for each, recipe in recipes.items()}
    methods = [*METHODS.values(), *named, *measured.method]
    for position, row in enumerate(published.rows):
        if row.method is not None and row.method not in methods:
            raise ValueError(
                f"{folder / FILE}: rows.{position}.method: no recipe of that name"
                f"{did_you_mean(row.method, methods)}; remove `method` for a system without a recipe, got "
                f"{row.method!r}"
            )
    rows: list[Row] = []
    for method, recipe in named.items():
        if expected := [_figure(s, m, of) for s, each in recipe.expect.items() for m, of in each.items()]:
            head = {"figures": "expected", "source": "recipe", "runs": 0}
            rows.append((Section.RESULTS, method, "", 0, head, expected))
    rows += _measured_rows(measured, named)
    for row in published.rows:
        head = {"figures": row.model, "source": row.where(), "runs": 0}
        for (section, part), scores in row.by_section().items():
            figures = [_figure(*key, value) for key, value in scores.items()]
            rows.append((section, row.method or "", part, 2, head, figures))
    # A row for each method that has published figures or a recipe, and that no run has measured.
    results = {(row[1], row[3]) for row in rows if row[0] == Section.RESULTS}
    to_come = ({method for method, _ in results} | {*named}) - {m for m, kind in results if kind == 1}
    empty = {"figures": "measured", "source": "", "runs": 0}
    rows += [(Section.RESULTS, method, "", 1, empty, []) for method in to_come if method]
    order = list(dict.fromkeys([*(row.method for row in published.rows if row.method), *methods, ""]))
    parts = list(dict.fromkeys(row[:3] for kind in (2, 1) for row in rows if row[3] == kind))
    rows.sort(key=lambda row: (order.index(row[1]), parts.index(row[:3]), row[3]))
    lines = [
        {"section": section, "recipe": method, "part": part, "row": number, **head, **figure}
        for number, (section, method, part, _, head, figures) in enumerate(rows)
        for figure in figures or [{"split": "", "measure": "", "text": ""}]
    ]
    columns = ["section", "row", *FIGURE, *STATISTICS, "text"]
    variants = dict.fromkeys(zip(measured.config, measured.variant, strict=True))
    labels = [
        f"- [{config[:6]}]: no expectation for this variant of {text}" for config, text in variants if text
    ]
    return Tables(published.sources, pd.DataFrame(lines, columns=columns), [*labels, *notes])


# A row: section, method ("" for a system without a recipe), part, kind (0 expected, 1 measured, 2 published),
# its first columns, and its figures.
Row = tuple[Section, str, str, int, dict[str, Any], list[dict[str, Any]]]


def _find_set(name: str) -> Path:
    """The folder of a set of recipes, given its path or a shipped name such as `msmarco-passage`.

    Raises FileNotFoundError.
    """
    sets = sorted({recipe.rpartition("/")[0] for recipe in shipped()})
    own = name.removeprefix("recipes/").rstrip("/")
    folder = SHIPPED / own if own in sets else Path(name)
    if not folder.is_dir():
        text = f"no set of recipes {name!r}: neither a folder nor a shipped set{did_you_mean(own, sets)}"
        raise FileNotFoundError(f"{text}; sets: {', '.join(sets)}")
    return folder


def _measured_rows(measured: pd.DataFrame, recipes: Mapping[str, Recipe]) -> Iterator[Row]:
    """One row for the runs that differ by the seed alone, and for rows without training that agree."""
    for (section, method, part), alike in measured.groupby(["section", "method", "part"], sort=False):
        expect = recipes[method].expect if section == Section.RESULTS and method in recipes else {}
        for config, group in alike.groupby("config", sort=False):
            is_variant = bool(expect) and bool(group.variant.any())
            is_labelled = not config.startswith("=") and (alike.config.nunique() > 1 or is_variant)
            runs = group.run.unique()
            figures = []
            for (split, measure), of_key in group.groupby(["split", "measure"], sort=False):
                expected = None if is_variant else expect.get(split, {}).get(measure)
                values = of_key.value.dropna().tolist()
                figures.append(_figure(split, measure, values or of_key.text.iloc[0], expected))
            head = {"figures": f"measured [{config[:6]}]" if is_labelled else "measured"}
            head["source"] = runs[0] if len(runs) == 1 else f"{runs[0]} and {len(runs) - 1} more"
            yield section, method, part, 1, {**head, "runs": len(runs)}, figures


def _figure(
    split: str, measure: str, values: float | Sequence[float] | str, expected: float | None = None
) -> dict[str, Any]:
    """A score as published (a number), of runs (a list), or the reason why it is missing (a text)."""
    figure: dict[str, Any] = {"split": split, "measure": measure}
    if isinstance(values, str):
        return {**figure, "text": values}
    of_runs = isinstance(values, list)
    values = values if isinstance(values, list) else [values]  # type: ignore[list-item]
    mean = sum(values) / len(values)
    if measure == MILLISECONDS:
        text = f"{mean:.0f}"
    else:  # three decimals, as papers print them, or four if there are more
        text = mean_range(values) if of_runs else f"{mean:.{3 if round(mean, 3) == mean else 4}f}"
    difference = None if expected is None else mean - expected
    text += "" if difference is None else f", {difference:+.3f}"
    statistics = zip(STATISTICS, (mean, min(values), max(values), difference), strict=True)
    return {**figure, "text": text, **dict(statistics)}


def _table(heading: str, lines: pd.DataFrame, head: Sequence[str]) -> str:
    """A Markdown table; "" if no row has a score. Rows of runs and rows to be measured are always shown."""
    columns = _score_columns(lines)
    cells = []
    for _, row in lines.groupby("row", sort=False):
        first = row.iloc[0]
        texts = dict(zip(zip(row.split, row.measure, strict=True), row.text, strict=True))
        if first.runs or not first.split or texts.keys() & set(columns):
            part = {PARTS.get(first.section, ""): first.part or None, "system": first.figures}
            own = {"recipe": first.recipe or None, "figures": first.figures, "source": first.source or None}
            scores = {" ".join(key): text for key, text in texts.items() if text}
            cells.append({**part, **own, "runs": int(first.runs) or None, **scores})
    return (
        "\n\n".join(filter(None, [heading, table(cells, [*head, *map(" ".join, columns)])])) if cells else ""
    )


def _score_columns(lines: pd.DataFrame) -> list[tuple[str, str]]:
    """The (split, measure) of published or expected scores, else of measured ones; grouped by split."""
    scored = lines[lines.split != ""]
    reported = scored[scored.runs == 0] if (scored.runs == 0).any() else scored
    splits = list(dict.fromkeys(reported.split))
    keys = dict.fromkeys(zip(reported.split, reported.measure, strict=True))
    return sorted(keys, key=lambda key: splits.index(key[0]))
