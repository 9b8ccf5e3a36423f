"""What the recipes of a grid gain over one of them: for each of its other settings, and by each index that searched.

The study of a production system in Xiong et al. 2021, arXiv:2007.00808, Table 4: exact or approximate search, 64 dimensions or 768.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from pyserini_ance.measures.compare import last_stage, read_results, spread
from pyserini_ance.measures.grid import RECORD, SEED
from pyserini_ance.recipe.grid import RECIPE
from pyserini_ance.recipe.parts import did_you_mean
from pyserini_ance.storage.files import read_json

EXACT = "exact"
Place = tuple[tuple[tuple[str, str | None], ...], str]  # settings, None where it is as the recipe has it, and index


def gains(folder: Path, baseline: str) -> tuple[list[dict], list[str]]:
    """Rows and columns of a table: for each setting, index and recipe its measures over seeds, and the gain of their mean in percent.

    Raises ValueError for a folder that is no grid's over recipes, and for a `baseline` that is no recipe of it.
    """
    if not (folder / RECORD).exists():
        raise ValueError(f"{folder} is no grid's folder (it has no {RECORD}); name that of a grid over recipes, for example runs/production-demo")
    grid = read_json(folder / RECORD)
    told = [{RECIPE: grid["recipe"], **run} for run in grid["runs"]]
    runs = [run for run in told if run["status"] == "finished"]
    recipes = list(dict.fromkeys(run[RECIPE] for run in runs))
    if baseline not in recipes:
        near = did_you_mean(baseline, recipes)
        raise ValueError(f"--gains {baseline!r} is no recipe that has finished in {folder}{near}; those: {', '.join(recipes) or 'none'}")
    varied = [name for name, key in grid["keys"].items() if key not in (RECIPE, SEED) and _varies(name, told)]
    found, measures = _found(folder, runs, varied)
    rows = [
        {**dict(settings), "index": index, "recipe": recipe, "runs": len(values)}
        | _cells(values, of_recipes.get(baseline) if recipe != baseline else None, measures)
        for (settings, index), of_recipes in found.items()
        for recipe, values in sorted(of_recipes.items(), key=lambda pair: recipes.index(pair[0]))
    ]
    return rows, [*varied, "index", "recipe", "runs", *measures, *(f"{measure} gain" for measure in measures)]


def _varies(setting: str, runs: Sequence[Mapping]) -> bool:
    """One that some recipes alone have, with a single value, such as those of their own stages, is part of them."""
    of_recipes: dict[str, set[str | None]] = defaultdict(set)
    for run in runs:
        of_recipes[run[RECIPE]].add(run.get(setting))
    given = set().union(*of_recipes.values()) - {None}
    return len(given) > 1 or any(len(values) > 1 for values in of_recipes.values())


def _found(folder: Path, runs: Sequence[Mapping], varied: Sequence[str]) -> tuple[dict[Place, dict[str, list[Mapping]]], list[str]]:
    """By setting and index, and by recipe, a row of measures for each seed; and what the measures are called."""
    found: dict[Place, dict[str, list[Mapping]]] = defaultdict(lambda: defaultdict(list))
    measures: list[str] = []
    for run in runs:
        results = read_results(folder / run["run"])
        measures = results["measures"]
        last = last_stage(results["rows"])["row"]
        for row in results["rows"]:
            name, _, index = row["row"].partition("+")
            if name == last:
                found[tuple((key, run.get(key)) for key in varied), index or EXACT][run[RECIPE]].append(row)
    return found, measures


def _cells(values: Sequence[Mapping], baseline: Sequence[Mapping] | None, measures: Sequence[str]) -> dict[str, str]:
    cells = {measure: spread([row[measure] for row in values]) for measure in measures}
    if baseline:
        means = {measure: [fmean(row[measure] for row in rows) for rows in (values, baseline)] for measure in measures}
        cells |= {f"{measure} gain": f"{(value / base - 1) * 100:+.1f} %" for measure, (value, base) in means.items() if base}
    return cells
