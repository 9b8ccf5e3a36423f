"""Finished runs in one table: mean and range over the seeds of each recipe, and a grid's gains over a
baseline."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pyserini_ance.evaluation import tables
from pyserini_ance.recipe import load
from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.grid_spec import GRID_FILE, RECIPE, SEED
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.reports.ranking_inputs import common_qrels
from pyserini_ance.runs.provenance import hashed_settings, seeds_of
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json

log = logging.getLogger(__name__)
EXACT = "exact"  # the index of a row without `+INDEX`
Results = Mapping[str, Any]  # of a run, as tables.read_results returns them
Table = tuple[list[dict[str, Any]], list[str]]  # rows and columns


def runs_in(paths: Sequence[Path]) -> list[Path]:
    """The run directories, each once: of a grid's folder its finished runs, any other folder itself.

    Files are skipped: a shell's `runs/*` names some. Raises FileNotFoundError if there are only files,
    ValueError if no run of a grid has finished.
    """
    runs: dict[Path, Path] = {}
    for folder in (path for path in paths if not path.is_file()):
        found = [folder]
        if (folder / GRID_FILE).exists():
            recorded = read_json(folder / GRID_FILE)["runs"]
            found = [folder / run["run"] for run in recorded if run["status"] == "finished"]
            if not found:
                raise ValueError(f"{folder}: no run of this grid has finished yet")
            if len(found) < len(recorded):
                message = "%s: %d of %d runs have finished; the others are skipped"
                log.warning(message, folder, len(found), len(recorded))
        for run in found:
            runs.setdefault(run.resolve(), run)
    if not runs:
        raise FileNotFoundError(f"{paths[0]} is a file; pass a run directory")
    return list(runs.values())


def read_distinct(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """The results of the runs (`read_results`), without repetitions of another run.

    A repetition has the recipe, settings, seed and measures of an earlier run; it would count as one more
    seed, so that it is left out, with a warning.
    """
    distinct: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in runs:
        results = tables.read_results(run)
        seeds = seeds_of(recipe) if (recipe := _recipe(Path(results["run"]))) else run  # unlike any other
        measured = {name: round(tables.last_stage(results["rows"])[name], 6) for name in results["measures"]}
        key = (results.get("recipe"), results.get("config_hash"), seeds, *measured.items())
        if key in distinct:
            message = "%s repeats %s: the same recipe, settings, seed and measures; it is not counted"
            log.warning(message, run, distinct[key]["run"])
        distinct.setdefault(key, results)
    return list(distinct.values())


def compare(results: Sequence[Results], only: Sequence[str] = ()) -> Table:
    """A table: BM25, BM25+RM3 and each untrained encoder once, then the last stage of each recipe, and
    `RECIPE hybrid` where runs have it.

    Runs of one recipe that differ by more than the seed have separate rows. A measure reads `mean
    (lowest-highest)`; `seconds` is the mean duration of training, mining and evaluation; `commit` is shown
    where it is recorded. `only` are the labels of the rows to show, none: all. Raises ValueError if measures
    or data differ, and for a label that is not a row.
    """
    measures, rows = results[0]["measures"], []
    for label, group in measured_rows(results, only).groupby("label", sort=False):
        of_runs = [results[run] for run in group.run] if group.is_trained.iloc[0] else []
        commits = dict.fromkeys(commit for result in of_runs for commit in result["commits"])
        seconds = [tables.seconds_of(result["rows"]) for result in of_runs]
        rows.append(
            {"recipe": label, "runs": len(of_runs) or None}
            | {measure: tables.mean_range(group[measure].tolist()) for measure in measures}
            | {"seconds": round(sum(seconds) / len(seconds)) if seconds else None}
            | {"commit": ", ".join(commits) or None}
        )
    return rows, ["recipe", "runs", *measures, "seconds", *["commit"] * any(row["commit"] for row in rows)]


def measured_rows(results: Sequence[Results], only: Sequence[str] = ()) -> pd.DataFrame:
    """One line for each row of a run that a row of the table summarizes, in the table's order.

    Columns: the table's `label`, `run` (a position in `results`), `row` (its name in the run), `is_trained`
    and the measures. Raises ValueError as `compare` does.
    """
    measures = tables.common_measures(results)
    folders = [RunDir(Path(result["run"])) for result in results]
    recipes = filter(None, map(_recipe, (one.folder for one in folders)))
    for split in dict.fromkeys(split for recipe in recipes for split in recipe.final_evaluation.split):
        common_qrels(folders, split)
    lines: list[dict[str, Any]] = []
    for run, result in enumerate(results):
        last = tables.last_stage(result["rows"])
        for row in result["rows"]:
            line = {"run": run, **{measure: row.get(measure) for measure in measures}, "row": row["row"]}
            if row["row"] in tables.UNTRAINED_ROWS:
                same_row = (other for other in lines if other["row"] == row["row"])
                # But for rounding.
                equal = (o for o in same_row if all(abs(o[name] - row[name]) <= 1e-6 for name in measures))
                of = next(equal, {"tag": f"of {result['recipe']} {_tag(result)}"})["tag"]
                lines.append({**line, "name": row["row"], "tag": of, "is_trained": False})
            elif row is last or row["row"] == tables.HYBRID:
                name = result["recipe"] if row is last else f"{result['recipe']} {tables.HYBRID}"
                lines.append({**line, "name": name, "tag": _tag(result), "is_trained": True})
    frame = pd.DataFrame(lines)
    bm25 = [lines[first] for first in frame[frame["row"] == tables.BM25].drop_duplicates("tag").index]
    if len(bm25) > 1:  # then the runs were evaluated on different data
        one, other = (
            f"{', '.join(f'{name} {line[name]:.4f}' for name in measures)} in {results[line['run']]['run']}"
            for line in bm25[:2]
        )
        raise ValueError(
            f"BM25 measures {one}, but {other}: compare runs on the same data and test split, with the same "
            "bm25.k1, bm25.b and bm25.index"
        )
    frame["label"] = _labels(frame["name"], frame["tag"])
    frame = frame.sort_values(["is_trained", "name", "tag"], kind="stable")
    known = list(dict.fromkeys(frame.label))
    for name in only:
        if name not in known:
            raise ValueError(
                f"{name!r} is not a row of the table{did_you_mean(name, known)}; rows: {', '.join(known)}"
            )
    return frame[frame.label.isin(only)] if only else frame


def labels(results: Sequence[Results]) -> list[str]:
    """The label of each run's row in the table."""
    names = pd.Series([result["recipe"] for result in results], dtype=str)
    return _labels(names, pd.Series(map(_tag, results), dtype=str)).tolist()


def _tag(result: Results) -> str:
    return f"[{result['config_hash'][:6]}]"


def _labels(names: pd.Series, tags: pd.Series) -> pd.Series:
    """The name, and where other lines have it with another tag, also the tag."""
    return names.where(tags.groupby(names).transform("nunique") == 1, names + " " + tags)


def variant_legend(results: Sequence[Results], rows: Iterable[str]) -> list[str]:
    """A line for each variant of a recipe among `rows`, labels of a table: `[6a54dc]: stages.ance.steps=20`.

    It has the values of the settings in which the variants of the recipe differ.
    """
    shown = " ".join(rows)
    variants: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for result in results:
        if recipe := _recipe(Path(result["run"])):
            variants[result["recipe"]].setdefault(_tag(result), hashed_settings(recipe))
    lines = []
    for by_tag in variants.values():
        first = next(iter(by_tag.values()))
        changed = {tag: list(load.differences(first, settings)) for tag, settings in by_tag.items()}
        base = {key: old for of_tag in changed.values() for key, old, _ in of_tag}
        for tag in (tag for tag in by_tag if base and tag in shown):
            values = [f"{k}={v}" for k, v in (base | {k: new for k, _, new in changed[tag]}).items()]
            more = len(values) - load.SHOWN
            values[load.SHOWN :] = [f"and {more} more"] if more > 0 else []
            lines.append(f"{tag}: {'; '.join(values)}")
    return lines


def _recipe(run: Path) -> Recipe | None:
    """The recipe of a run, if this version reads it."""
    try:
        return RunDir(run).read_recipe()
    except (FileNotFoundError, RuntimeError, ValueError):
        return None


def improvements(folder: Path, baseline: str) -> Table:
    """A table: the measures of each recipe of a grid, and the gain of their mean over `baseline` in percent.

    There is a row for each of the grid's other settings and each index; measures are over seeds. Raises
    ValueError for a folder that is not a grid over recipes, for a `baseline` that is not one of its recipes,
    and for runs with different measures.
    """
    if not (folder / GRID_FILE).exists():
        raise ValueError(f"{folder} is not the folder of a grid ({GRID_FILE} is missing)")
    grid = read_json(folder / GRID_FILE)
    runs = pd.DataFrame([{RECIPE: grid["recipe"], **run} for run in grid["runs"]])
    finished = runs[runs.status == "finished"]
    if baseline not in (recipes := finished[RECIPE].unique().tolist()):
        raise ValueError(
            f"--improvement-over {baseline!r} is not a recipe that has finished in {folder}"
            f"{did_you_mean(baseline, recipes)}; finished recipes: {', '.join(recipes) or 'none'}"
        )
    # A setting that only some recipes have, with one value, such as those of their own stages, belongs to the
    # recipes.
    varied = [
        name
        for name, key in grid["keys"].items()
        if key not in (RECIPE, SEED) and name in runs
        if runs[name].nunique() > 1 or (runs.groupby(RECIPE)[name].nunique(dropna=False) > 1).any()
    ]
    results = [tables.read_results(folder / run) for run in finished.run]
    measures = tables.common_measures(results)
    lines = []
    for run, result in zip(finished.to_dict("records"), results, strict=True):
        last = tables.last_stage(result["rows"])["row"]
        for row in result["rows"]:
            name, _, index = row["row"].partition("+")
            if name == last:
                lines.append({**run, **row, "index": index or EXACT})
    rows = []
    frame = pd.DataFrame(lines)[[*varied, "index", RECIPE, *measures]]
    of_base = frame[frame[RECIPE] == baseline]
    for _, group in frame.groupby([*varied, "index"], sort=False, dropna=False):
        has = [*[key for key in varied if of_base[key].notna().any()], "index"]  # what the baseline has, too
        same = (of_base[has].fillna("") == group.iloc[0][has].fillna("")).all(axis=1)
        base = of_base.loc[same, measures].mean()
        for recipe, own in group.groupby(RECIPE, sort=False):
            row = {key: None if pd.isna(value) else value for key, value in own.iloc[0].items()}
            row |= {"runs": len(own), **{m: tables.mean_range(own[m].tolist()) for m in measures}}
            if recipe != baseline:
                gains = (own[measures].mean() / base.where(base != 0) - 1).dropna() * 100
                row |= {f"{measure} gain": f"{gain:+.1f} %" for measure, gain in gains.items()}
            rows.append(row)
    return rows, [*varied, "index", RECIPE, "runs", *measures, *(f"{measure} gain" for measure in measures)]
