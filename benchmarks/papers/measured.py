"""The measured rows of the papers' tables: results tables of finished runs, by split and measure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyserini_ance.evaluation.expected import variant_of
from pyserini_ance.evaluation.tables import UNTRAINED_ROWS, last_stage, read_results
from pyserini_ance.recipe.load import read_yaml
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.published_figures import EXACT_INDEX, Section
from pyserini_ance.runs.rundir import RunDir

DEPTHS = ("", "*/", "*/*/", "*/*/*/")  # the folder is a run, holds runs, or holds grids
SplitMeasure = tuple[str, str]  # split, measure


@dataclass(frozen=True)
class MeasuredRow:
    """One row of a run, with its scores in `figures`.

    For a row without training, `recipe` is the row's name and `config_hash` is empty; runs of one recipe that
    share `config_hash` differ by the seed alone. `part`: what the row is about where the section has several
    for a recipe, such as an index. `absent`: why a figure is missing, in words for its cell. `variant`: what
    the run has instead of the recipe of its name, so that the expected figures do not hold.
    """

    recipe: str
    config_hash: str
    run: str
    figures: dict[SplitMeasure, float]
    section: Section = Section.RESULTS
    part: str | None = None
    absent: dict[SplitMeasure, str] = field(default_factory=dict)
    variant: str = ""


def read_measured(run: Path, name: str, recipes: Mapping[str, Recipe] | None = None) -> list[MeasuredRow]:
    """The rows of a finished run, called `name`: those without training, that of the last stage, and that of
    each index that searched with the last stage's model.

    `recipes` are those that the run is compared with, by name. Raises ValueError if its recipe or its
    `measures.json` is of another version.
    """
    results, recipe = read_results(run), RunDir(run).read_recipe()
    try:
        rows, made_by = results["rows"], (results["recipe"], results["config_hash"])
        last = last_stage(rows)
    except KeyError as error:
        raise ValueError(
            f"{RunDir(run).measures} has no {error}, which this version writes; evaluate again, or "
            "remove the run"
        ) from None
    base = (recipes or {}).get(made_by[0])
    variant = variant_of(recipe, base) if base else ""
    columns = recipe.final_evaluation.columns.items()

    def measured(of: tuple[str, str], row: Mapping, section: Section, part: str | None) -> MeasuredRow:
        figures = {key: row[column] for key, column in columns if column in row}
        return MeasuredRow(*of, name, figures, section, part, variant=variant if of == made_by else "")

    untrained = [
        measured((row["row"], ""), row, Section.RESULTS, None) for row in rows if row["row"] in UNTRAINED_ROWS
    ]
    prefix = f"{last['row']}+"
    indexes = {row["row"].removeprefix(prefix): row for row in rows if row["row"].startswith(prefix)}
    by_index = [
        measured(made_by, row, Section.INDEXES, index)
        for index, row in ({EXACT_INDEX: last} | indexes if indexes else {}).items()
    ]
    return [*untrained, measured(made_by, last, Section.RESULTS, None), *by_index]


def find_runs(folder: Path, selects: Callable[[str], bool]) -> tuple[list[Path], list[Path]]:
    """The run directories whose recipe's name `selects` accepts: the finished ones, and the others."""
    folders = [path.parent for depth in DEPTHS for path in sorted(folder.glob(f"{depth}recipe.yaml"))]
    runs = [run for run in folders if RunDir(run).state.exists() and selects(_recipe_name(run))]
    finished = [run for run in runs if RunDir(run).measures.exists()]
    return finished, [run for run in runs if run not in finished]


def _recipe_name(run: Path) -> str:
    """The recipe's name, without validating the recipe, which may be of other data and of another version."""
    recipe = read_yaml(RunDir(run).recipe.read_bytes(), str(RunDir(run).recipe))
    return str(recipe.get("name", "")) if isinstance(recipe, dict) else ""


def group_alike(measured: Sequence[MeasuredRow]) -> list[list[MeasuredRow]]:
    """Group the rows that share one row of the table.

    Trained rows are grouped if they differ by the seed alone, rows without training if their common scores
    agree.
    """
    groups: list[list[MeasuredRow]] = []
    for row in measured:
        matches = (
            group
            for group in groups
            if row.config_hash == group[0].config_hash and (row.config_hash or _agree(row, group))
        )
        group = next(matches, None)
        if group is None:
            groups.append(group := [])
        group.append(row)
    return groups


def _agree(row: MeasuredRow, group: Sequence[MeasuredRow]) -> bool:
    return all(
        abs(value - other.figures[key]) <= 1e-6
        for other in group
        for key, value in row.figures.items()
        if key in other.figures
    )


def values_by_column(group: Sequence[MeasuredRow]) -> dict[SplitMeasure, list[float]]:
    """By split and measure, the values of the rows that have it."""
    keys = dict.fromkeys(key for row in group for key in row.figures)
    return {key: [row.figures[key] for row in group if key in row.figures] for key in keys}
