"""Measured: what the run directories of a set of recipes have measured, by split and measure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyserini_ance.measures.compare import UNTRAINED_ROWS, last_stage, read_results
from pyserini_ance.recipe.load import load, read_yaml
from pyserini_ance.runs.rundir import RunDir

Place = tuple[str, str]  # split, and measure by the name that tables have for it

DEPTHS = ("", "*/", "*/*/", "*/*/*/")  # a run itself, a folder of runs, and of grids


@dataclass(frozen=True)
class Measured:
    """What a run has measured as one row of its closing table, by place. `recipe` is the row's name where it needs no training, and then
    `variant` is empty; runs of one recipe that share `variant` differ by the seed alone.
    """

    recipe: str
    variant: str
    run: str
    figures: dict[Place, float]


def read_measured(run: Path, name: str) -> list[Measured]:
    """Of a finished run, called `name`: the rows that need no training, and that of the last stage.

    Raises ValueError when its recipe or `measures.json` is not as this version writes them.
    """
    results, test = read_results(run), load(RunDir(run).recipe).recipe.test
    try:
        rows = [(row["row"], "", row) for row in results["rows"] if row["row"] in UNTRAINED_ROWS]
        rows.append((results["recipe"], results["variant"], last_stage(results["rows"])))
    except KeyError as error:
        raise ValueError(f"{RunDir(run).measures} has no {error}, which this version writes; measure again, or leave the run out") from None
    columns = test.columns.items()
    return [Measured(recipe, variant, name, {place: row[column] for place, column in columns if column in row}) for recipe, variant, row in rows]


def find_runs(folder: Path, is_wanted: Callable[[str], bool]) -> tuple[list[Path], list[Path]]:
    """Run directories of the recipes whose names are wanted: those that have finished, and those that have not."""
    found = [path.parent for depth in DEPTHS for path in sorted(folder.glob(f"{depth}recipe.yaml"))]
    runs = [run for run in found if RunDir(run).state.exists() and is_wanted(_recipe_name(run))]
    finished = [run for run in runs if RunDir(run).measures.exists()]
    return finished, [run for run in runs if run not in finished]


def _recipe_name(run: Path) -> str:
    """Without checking the whole recipe: it may be of other data, and of another version."""
    recipe = read_yaml(RunDir(run).recipe.read_bytes(), str(RunDir(run).recipe))
    return str(recipe.get("name", "")) if isinstance(recipe, dict) else ""


def alike(measured: Sequence[Measured]) -> list[list[Measured]]:
    """What belongs in one row: runs that differ by the seed alone, and, of what needs no training, those that agree where both measure."""
    groups: list[list[Measured]] = []
    for one in measured:
        fitting = (group for group in groups if one.variant == group[0].variant and (one.variant or _agree(one, group)))
        if (group := next(fitting, None)) is None:
            groups.append(group := [])
        group.append(one)
    return groups


def _agree(one: Measured, group: Sequence[Measured]) -> bool:
    return all(abs(value - other.figures[place]) <= 1e-6 for other in group for place, value in one.figures.items() if place in other.figures)


def together(group: Sequence[Measured]) -> dict[Place, list[float]]:
    """By place, the values of those that have it."""
    places = dict.fromkeys(place for one in group for place in one.figures)
    return {place: [one.figures[place] for one in group if place in one.figures] for place in places}
