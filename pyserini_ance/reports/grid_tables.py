"""Tables of a grid: each recipe's improvement over a baseline, and the finished runs of its folder."""

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pyserini_ance.evaluation.grid_rows import GRID_FILE, SEED
from pyserini_ance.evaluation.tables import common_measures, last_stage, mean_range, read_results
from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.grid_spec import RECIPE
from pyserini_ance.runs.rundir import RECIPE as RECIPE_FILE
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json

log = logging.getLogger(__name__)

EXACT = "exact"  # the index of a row without `+INDEX`
# The varied settings (None: the recipe's own value), and the index that searched.
Setting = tuple[tuple[tuple[str, str | None], ...], str]


def improvements(folder: Path, baseline: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and columns of a table: the measures of each recipe, and the gain of their mean over `baseline` in
    percent.

    There is a row for each of the grid's other settings and each index; measures are over seeds. Raises
    ValueError for a folder that is not a grid over recipes, for a `baseline` that is not one of its recipes,
    and for runs with different measures.
    """
    if not (folder / GRID_FILE).exists():
        raise ValueError(
            f"{folder} is not the folder of a grid ({GRID_FILE} is missing); pass that of a grid over "
            "recipes, for example runs/production-demo"
        )
    grid = read_json(folder / GRID_FILE)
    all_runs = [{RECIPE: grid["recipe"], **run} for run in grid["runs"]]
    runs = [run for run in all_runs if run["status"] == "finished"]
    recipes = list(dict.fromkeys(run[RECIPE] for run in runs))
    if baseline not in recipes:
        raise ValueError(
            f"--improvement-over {baseline!r} is not a recipe that has finished in {folder}"
            f"{did_you_mean(baseline, recipes)}; finished recipes: {', '.join(recipes) or 'none'}"
        )
    varied = [
        name for name, key in grid["keys"].items() if key not in (RECIPE, SEED) and _varies(name, all_runs)
    ]
    by_setting, measures = _rows_by_setting(folder, runs, varied)
    rows: list[dict[str, Any]] = [
        {**dict(settings), "index": index, "recipe": recipe, "runs": len(values)}
        | _cells(values, by_recipe.get(baseline) if recipe != baseline else None, measures)
        for (settings, index), by_recipe in by_setting.items()
        for recipe, values in sorted(by_recipe.items(), key=lambda pair: recipes.index(pair[0]))
    ]
    return rows, [*varied, "index", "recipe", "runs", *measures, *(f"{measure} gain" for measure in measures)]


def _varies(setting: str, runs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a setting has several values, in all recipes or in one.

    A setting that only some recipes have, with one value, such as those of their own stages, belongs to the
    recipes.
    """
    by_recipe: dict[str, set[str | None]] = defaultdict(set)
    for run in runs:
        by_recipe[run[RECIPE]].add(run.get(setting))
    values = set().union(*by_recipe.values()) - {None}
    return len(values) > 1 or any(len(of_recipe) > 1 for of_recipe in by_recipe.values())


def _rows_by_setting(
    folder: Path, runs: Sequence[Mapping[str, Any]], varied: Sequence[str]
) -> tuple[dict[Setting, dict[str, list[Mapping[str, Any]]]], list[str]]:
    """By setting and by recipe, one row of measures for each seed; and the names of the measures."""
    by_setting: dict[Setting, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    of_runs = [read_results(folder / run["run"]) for run in runs]
    for run, results in zip(runs, of_runs, strict=True):
        last = last_stage(results["rows"])["row"]
        settings = tuple((key, run.get(key)) for key in varied)
        for row in results["rows"]:
            name, _, index = row["row"].partition("+")
            if name == last:
                by_setting[settings, index or EXACT][run[RECIPE]].append(row)
    return by_setting, common_measures(of_runs)


def _cells(
    values: Sequence[Mapping[str, Any]], baseline: Sequence[Mapping[str, Any]] | None, measures: Sequence[str]
) -> dict[str, Any]:
    cells: dict[str, Any] = {measure: mean_range([row[measure] for row in values]) for measure in measures}
    if baseline:
        means = {
            measure: [fmean(row[measure] for row in rows) for rows in (values, baseline)]
            for measure in measures
        }
        cells |= {
            f"{measure} gain": f"{(value / base - 1) * 100:+.1f} %"
            for measure, (value, base) in means.items()
            if base
        }
    return cells


def runs_in(paths: Sequence[Path]) -> list[Path]:
    """The finished runs of each folder of a grid; any other folder itself.

    Files are skipped: a shell's `runs/*` names those that stand next to runs. Raises FileNotFoundError if
    there are only files, and for a folder of runs that is not a grid's; ValueError if no run of a grid has
    finished, and for a run that comes twice, which would count as two seeds.
    """
    folders = [path for path in paths if not path.is_file()]
    if not folders:
        raise FileNotFoundError(f"{paths[0]} is a file; pass a run directory")
    if files := [str(path) for path in paths if path.is_file() and not (path.parent / GRID_FILE).exists()]:
        log.warning("skipped, because they are files and not run directories: %s", ", ".join(files))
    runs = [run for folder in folders for run in _runs_of(folder)]
    for resolved, count in Counter(run.resolve() for run in runs).items():
        if count > 1:
            raise ValueError(
                f"run {resolved} was passed {count} times, by itself or within a grid; pass each run once"
            )
    return runs


def _runs_of(folder: Path) -> list[Path]:
    if (record := folder / GRID_FILE).exists():
        return _finished(folder, read_json(record)["runs"])
    is_run = RunDir(folder).recipe.exists() or RunDir(folder).measures.exists()
    if not is_run and any(any(folder.glob(f"*/{name}")) for name in (RECIPE_FILE, GRID_FILE)):
        raise FileNotFoundError(f"{folder} is not a run directory, but holds some; pass {folder}/*")
    return [folder]


def _finished(folder: Path, runs: Sequence[Mapping[str, Any]]) -> list[Path]:
    finished = [folder / run["run"] for run in runs if run["status"] == "finished"]
    if not finished:
        raise ValueError(f"{folder}: no run of this grid has finished yet")
    if len(finished) < len(runs):
        log.warning(
            "%s: %d of %d runs have finished; the others are skipped", folder, len(finished), len(runs)
        )
    return finished
