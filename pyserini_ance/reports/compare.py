"""Finished runs in one table: mean and range over the seeds of each recipe, significance tests between rows,
a grid's gains over a baseline, and dev curves."""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from pyserini_ance.data.trec import Qrels, read_qrels, read_run
from pyserini_ance.evaluation.grid_rows import GRID_FILE, SEED
from pyserini_ance.evaluation.metrics import per_query
from pyserini_ance.evaluation.significance import Difference, differences
from pyserini_ance.evaluation.tables import (
    BM25,
    HYBRID,
    UNTRAINED_ROWS,
    common_measures,
    last_stage,
    mean_range,
    read_results,
    seconds_of,
)
from pyserini_ance.recipe import variant
from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.grid_spec import RECIPE
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.reports.run_history import dev_curve
from pyserini_ance.runs.provenance import hashed_settings, seeds_of
from pyserini_ance.runs.rundir import RECIPE as RECIPE_FILE
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json, read_json_lines

log = logging.getLogger(__name__)
EXACT = "exact"  # the index of a row without `+INDEX`
Results = Mapping[str, Any]  # of a run, as tables.read_results returns them
Table = tuple[list[dict[str, Any]], list[str]]  # rows and columns


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
    runs = []
    for folder in folders:
        if (folder / GRID_FILE).exists():
            recorded = read_json(folder / GRID_FILE)["runs"]
            finished = [folder / run["run"] for run in recorded if run["status"] == "finished"]
            if not finished:
                raise ValueError(f"{folder}: no run of this grid has finished yet")
            if len(finished) < len(recorded):
                message = "%s: %d of %d runs have finished; the others are skipped"
                log.warning(message, folder, len(finished), len(recorded))
            runs += finished
            continue
        is_run = RunDir(folder).recipe.exists() or RunDir(folder).measures.exists()
        if not is_run and any(any(folder.glob(f"*/{name}")) for name in (RECIPE_FILE, GRID_FILE)):
            raise FileNotFoundError(f"{folder} is not a run directory, but holds some; pass {folder}/*")
        runs.append(folder)
    for resolved, count in Counter(run.resolve() for run in runs).items():
        if count > 1:
            raise ValueError(
                f"run {resolved} was passed {count} times, by itself or within a grid; pass each run once"
            )
    return runs


def read_distinct(runs: Sequence[Path]) -> tuple[list[Path], list[dict[str, Any]]]:
    """The runs and their results (`read_results`), without repetitions of another run.

    A repetition has the recipe, settings and seed of an earlier run. It would count as one more seed, so that
    it is left out, with a warning, if its measures are equal. With other measures both runs stay, with a
    warning.
    """
    alike: dict[tuple[Any, ...], list[tuple[Path, Results]]] = defaultdict(list)
    distinct: list[tuple[Path, dict[str, Any]]] = []
    for run in runs:
        results = read_results(run)
        seeds = seeds_of(recipe) if (recipe := _recipe(run)) else run  # without a recipe, unlike any other
        earlier = alike[results.get("recipe"), results.get("config_hash"), seeds]
        last, measures = last_stage(results["rows"]), results["measures"]
        same = next(
            (
                path
                for path, other in earlier
                if other["measures"] == measures and _are_equal(last_stage(other["rows"]), last, measures)
            ),
            None,
        )
        if same:
            message = "%s repeats %s: the same recipe, settings, seed and measures; it is not counted"
            log.warning(message, run, same)
            continue
        if earlier:
            log.warning(
                "%s and %s have the same recipe, settings and seed, but other measures, as on other machines "
                "or with async refreshes; both are counted as seeds of one row",
                earlier[0][0],
                run,
            )
        earlier.append((run, results))
        distinct.append((run, results))
    return [run for run, _ in distinct], [results for _, results in distinct]


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
        is_trained = bool(group.is_trained.iloc[0])
        commits = dict.fromkeys(commit for of_run in group.commits for commit in of_run)
        rows.append(
            {"recipe": label, "runs": len(group) if is_trained else None}
            | {measure: mean_range(group[measure].tolist()) for measure in measures}
            | {"seconds": round(sum(group.seconds) / len(group)) if is_trained else None}
            | {"commit": ", ".join(commits) or None}
        )
    return rows, ["recipe", "runs", *measures, "seconds", *["commit"] * any(row["commit"] for row in rows)]


def measured_rows(results: Sequence[Results], only: Sequence[str] = ()) -> pd.DataFrame:
    """One line for each row of a run that a row of the table summarizes, in the table's order.

    Columns: the table's `label`, `run` (a position in `results`), `row` (its name in the run), the measures,
    `is_trained`, `seconds` and `commits`. Raises ValueError as `compare` does.
    """
    measures = common_measures(results)
    lines: list[dict[str, Any]] = []
    for run, result in enumerate(results):
        trained = {"is_trained": True, "seconds": seconds_of(result["rows"]), "commits": result["commits"]}
        last, key = last_stage(result["rows"]), (result["recipe"], result["config_hash"])
        for row in result["rows"]:
            line = {"run": run, **{measure: row[measure] for measure in measures if measure in row}}
            line |= {"row": row["row"], "is_trained": False, "seconds": 0.0, "commits": ()}
            if row["row"] in UNTRAINED_ROWS:
                own = (row["row"], f"{result['recipe']} [{result['config_hash'][:6]}]")
                same = (o["key"] for o in lines if o["row"] == row["row"] and _are_equal(o, row, measures))
                lines.append({**line, "key": next(same, own)})
            elif row is last:
                lines.append({**line, "key": key, **trained})
            elif row["row"] == HYBRID:
                lines.append({**line, "key": (f"{key[0]} {HYBRID}", key[1]), **trained})
    keys = sorted({line["key"] for line in lines}, key=lambda key: (key[0] not in UNTRAINED_ROWS, key))
    bm25 = [next(line for line in lines if line["key"] == key) for key in keys if key[0] == BM25]
    if len(bm25) > 1:  # then the runs were evaluated on different data
        one, other = (
            f"{', '.join(f'{name} {line[name]:.4f}' for name in measures)} in {results[line['run']]['run']}"
            for line in sorted(bm25, key=lambda line: line["run"])[:2]
        )
        raise ValueError(
            f"BM25 measures {one}, but {other}: compare runs on the same data and test split, with the same "
            "bm25.k1, bm25.b and bm25.index"
        )
    shown = {key: _label(key, keys) for key in keys}
    for name in only:
        if name not in shown.values():
            rows = ", ".join(shown.values())
            raise ValueError(
                f"{name!r} is not a row of the table{did_you_mean(name, shown.values())}; rows: {rows}"
            )
    lines.sort(key=lambda line: keys.index(line["key"]))
    frame = pd.DataFrame([{"label": shown[line["key"]], **line} for line in lines])
    return frame[frame.label.isin(only)] if only else frame


def labels(results: Sequence[Results]) -> list[str]:
    """The label of each run's row in the table."""
    keys = [(result["recipe"], result["config_hash"]) for result in results]
    return [_label(key, list(dict.fromkeys(keys))) for key in keys]


def _label(key: tuple[str, str], keys: Sequence[tuple[str, str]]) -> str:
    name, config_hash = key
    if sum(other == name for other, _ in keys) == 1:
        return name
    return f"{name} of {config_hash}" if name in UNTRAINED_ROWS else f"{name} [{config_hash[:6]}]"


def _are_equal(row: Mapping[str, Any], other: Mapping[str, Any], measures: Sequence[str]) -> bool:
    """Whether two rows have the same measures, but for rounding."""
    return all(abs(row[measure] - other[measure]) <= 1e-6 for measure in measures)


def row_named(name: str, results: Sequence[Results]) -> str:
    """The label of a table's row: `name`, or that of the runs in the folder `name`, a run or a grid.

    Raises ValueError if the folder has runs in several rows. A name that is neither is returned as it is.
    """
    folder = Path(name).resolve()
    pairs = zip(labels(results), results, strict=True)
    rows = {label: None for label, of in pairs if Path(of["run"]).resolve().is_relative_to(folder)}
    if len(rows) > 1:
        raise ValueError(f"{name} has runs in several rows: {', '.join(rows)}; pass one of them")
    return next(iter(rows), name)


def variant_legend(results: Sequence[Results], rows: Iterable[str]) -> list[str]:
    """A line for each variant of a recipe among `rows`, labels of a table: `[6a54dc]: stages.ance.steps=20`.

    It has the values of the settings in which the variants of the recipe differ.
    """
    tags = set(re.findall(r"\[\w{6}\]", " ".join(rows)))
    variants: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for result in results:
        if recipe := _recipe(Path(result["run"])):
            tag = f"[{result['config_hash'][:6]}]"
            variants[result["recipe"]].setdefault(tag, hashed_settings(recipe))
    lines = []
    for by_tag in variants.values():
        first, *others = by_tag.values()
        changes = [{}, *({k: (old, new) for k, old, new in variant.differences(first, o)} for o in others)]
        differing = {key: old for changed in changes for key, (old, _) in changed.items()}
        for tag, changed in zip(by_tag, changes, strict=True):
            if tag in tags and differing:
                values = [f"{k}={changed[k][1] if k in changed else old}" for k, old in differing.items()]
                more = len(values) - variant.SHOWN
                values[variant.SHOWN :] = [f"and {more} more"] if more > 0 else []
                lines.append(f"{tag}: {'; '.join(values)}")
    return lines


def _recipe(run: Path) -> Recipe | None:
    """The recipe of a run, if this version reads it."""
    try:
        return RunDir(run).read_recipe()
    except (FileNotFoundError, RuntimeError, ValueError):
        return None


def significance(
    runs: Sequence[Path], results: Sequence[Results], baseline: str, test: str, only: Sequence[str] = ()
) -> dict[str, dict[str, Difference]]:
    """Compare each row of the table, or of `only`, with the row `baseline`, query by query, by row and by
    measure.

    A query's value is its mean over the row's runs; p values are corrected for the number of rows (Holm).
    `results` are those of `runs`. Raises ValueError for a baseline that is not a row, for runs with different
    test queries or judgments, and if there are no judgments.
    """
    rows, qrels = measured_rows(results), _common_qrels([RunDir(run) for run in runs])
    known = list(dict.fromkeys(rows.label))
    if baseline not in known:
        raise ValueError(
            f"--significance {baseline!r} is not a row of the table{did_you_mean(baseline, known)}; "
            f"rows: {', '.join(known)}"
        )
    systems = {}
    for label, group in measured_rows(results, only and [*only, baseline]).groupby("label", sort=False):
        values = [
            _per_query(RunDir(runs[run]), row, qrels) for run, row in zip(group.run, group.row, strict=True)
        ]
        systems[str(label)] = {name: np.mean([one[name] for one in values], axis=0) for name in values[0]}
    against = systems.pop(baseline)
    shown = {measure: against[measure] for measure in results[0]["measures"] if measure in against}
    return _against(systems, shown, test)


def significance_in_run(run: RunDir, result: str, others: Sequence[str]) -> dict[str, dict[str, Difference]]:
    """Compare the row `result` of a run with its rows `others`, query by query, by other row and by measure.

    The differences are those of the result from the other row. Rows without a ranking are left out.
    p values are corrected for the number of rows (Holm). Raises ValueError if there are no judgments.
    """
    qrels = _common_qrels([run])
    systems = {
        row: _per_query(run, row, qrels)
        for row in (result, *others)
        if all(run.ranking(row, split).exists() for split in qrels)
    }
    return {
        row: {m: Difference(0.0 - d.mean, d.p, d.losses, d.ties, d.wins) for m, d in by_measure.items()}
        for row, by_measure in _against(systems, systems.pop(result), "t").items()
    }


def _against(
    systems: Mapping[str, Mapping[str, np.ndarray]], baseline: Mapping[str, np.ndarray], test: str
) -> dict[str, dict[str, Difference]]:
    """The differences of systems from a baseline by system and measure; values are (Q,) by measure."""
    by_system: dict[str, dict[str, Difference]] = {name: {} for name in systems}
    for measure, values in baseline.items():
        found = differences({name: systems[name][measure] for name in systems}, values, test)
        for name, difference in found.items():
            by_system[name][measure] = difference
    return by_system


def significance_cells(by_measure: Mapping[str, Difference], baseline: str) -> dict[str, str]:
    """The cells of one row by column: the difference, its p value, and queries won, tied and lost."""
    return {f"{measure} against {baseline}": d.with_counts() for measure, d in by_measure.items()}


def significance_legend(baseline: str, test: str, rows: int) -> str:
    """The meaning of the cells in one line; `test` is a key of TESTS, `rows` the number of rows tested."""
    name = {"t": "paired t test", "permutation": "paired permutation test"}[test]
    return (
        f"against {baseline}: mean difference over the test queries, p value of a {name} (Holm over {rows} "
        f"rows, per measure), and queries (won/tied/lost) against {baseline}"
    )


def tested_rows(
    tests: Mapping[str, Mapping[str, Difference]], result: str
) -> tuple[list[Any], list[str], str]:
    """Rows and columns of a table of `significance_in_run`, and the meaning of its cells."""
    rows = [{"row": row, **{m: d.with_counts() for m, d in of.items()}} for row, of in tests.items()]
    note = (
        f"Mean difference of {result} from the row over the test queries, p value of a paired t test (Holm "
        f"over {len(rows)} rows, per measure), and queries (won/tied/lost)"
    )
    return rows, list(dict.fromkeys(column for row in rows for column in row)), note


def _common_qrels(runs: Sequence[RunDir]) -> dict[str, Qrels]:
    """The qrels that all runs share, by test split.

    Splits judged by answer strings have no qrels; they are skipped with a warning.
    """
    by_run = [
        {s: read_qrels(run.qrels(s)) for s in run.read_final_evaluation().split if run.qrels(s).exists()}
        for run in runs
    ]
    first, qrels = runs[0], by_run[0]
    for other, other_qrels in zip(runs[1:], by_run[1:], strict=True):
        if other_qrels != qrels:
            raise ValueError(
                f"{other.folder} was evaluated on other queries or judgments than {first.folder}: "
                "compare runs on the same data and split"
            )
    if unjudged := [split for split in first.read_final_evaluation().split if split not in qrels]:
        message = (
            f"{first.folder} has no judgments of {', '.join(unjudged)}, whose passages are judged by the "
            "answers they contain"
        )
        if not qrels:
            raise ValueError(
                f"{message}: --significance needs judged queries; see pyserini-ance evaluate --answers"
            )
        log.warning("%s: --significance skips them", message)
    return qrels


def _per_query(run: RunDir, row: str, qrels_by_split: Mapping[str, Qrels]) -> dict[str, np.ndarray]:
    """By column of the table, (Q,) values of the judged queries in the order of the qrels."""
    final_evaluation = run.read_final_evaluation()
    by_column = {}
    for split, qrels in qrels_by_split.items():
        measures = final_evaluation.measures_of(split)
        values = per_query(qrels, read_run(run.ranking(row, split)), measures)
        for measure in map(str, measures):
            column = final_evaluation.column(split, measure)
            by_column[column] = np.array([values[query][measure] for query in qrels])
    return by_column


def improvements(folder: Path, baseline: str) -> Table:
    """A table: the measures of each recipe of a grid, and the gain of their mean over `baseline` in percent.

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
    frame = pd.DataFrame(all_runs)
    # A setting that only some recipes have, with one value, such as those of their own stages, belongs to the
    # recipes.
    varied = [
        name
        for name, key in grid["keys"].items()
        if key not in (RECIPE, SEED) and name in frame
        if frame[name].nunique() > 1 or (frame.groupby(RECIPE)[name].nunique(dropna=False) > 1).any()
    ]
    results = [read_results(folder / run["run"]) for run in runs]
    measures = common_measures(results)
    groups: dict[tuple[Any, ...], dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for run, result in zip(runs, results, strict=True):
        last = last_stage(result["rows"])["row"]
        for row in result["rows"]:
            name, _, index = row["row"].partition("+")
            if name == last:
                groups[*(run.get(key) for key in varied), index or EXACT][run[RECIPE]].append(row)
    rows = []
    for settings, by_recipe in groups.items():
        means = {
            recipe: {measure: fmean(row[measure] for row in of_recipe) for measure in measures}
            for recipe, of_recipe in by_recipe.items()
        }
        for recipe in sorted(by_recipe, key=recipes.index):
            row = dict(zip([*varied, "index"], settings, strict=True))
            row |= {"recipe": recipe, "runs": len(by_recipe[recipe])}
            row |= {m: mean_range([one[m] for one in by_recipe[recipe]]) for m in measures}
            if recipe != baseline and baseline in means:
                row |= {
                    f"{m} gain": f"{(means[recipe][m] / base - 1) * 100:+.1f} %"
                    for m, base in means[baseline].items()
                    if base
                }
            rows.append(row)
    return rows, [*varied, "index", "recipe", "runs", *measures, *(f"{measure} gain" for measure in measures)]


def mean_curves(runs: Sequence[tuple[str, Path]]) -> dict[str, pd.DataFrame]:
    """For each label, the mean curve (`dev_curve`) of its runs, over the steps at which all were evaluated.

    With `patience`, runs end at different steps. `runs`: (label, run directory). Raises ValueError if the
    runs of a label have no common step.
    """
    curves: dict[str, list[pd.DataFrame]] = defaultdict(list)
    key = ["stage", "step", "measure"]
    for label, run in runs:
        points = pd.DataFrame(
            dev_curve(read_json_lines(RunDir(run).metrics)), columns=[*key, "steps", "seconds", "value"]
        )
        curves[label].append(points.drop_duplicates(key, keep="last"))
    means = {}
    for label, of_runs in curves.items():
        grouped = pd.concat(of_runs).groupby(key, sort=False)
        mean = grouped.mean()[grouped.size() == len(of_runs)].reset_index()
        counts = ", ".join(str(len(points)) for points in of_runs)
        if any(map(len, of_runs)) and not len(mean):
            raise ValueError(
                f"{label}: its {len(of_runs)} runs were evaluated at different steps, or by other measures "
                f"({counts} dev scores, none of which all have); compare runs with the same `evaluate:`"
            )
        if len(mean) < max(map(len, of_runs)):
            message = "%s: its runs have %s dev scores; the mean is over the %d that all have"
            log.warning(message, label, counts, len(mean))
        means[label] = mean
    return means


def time_to_target(curves: Mapping[str, pd.DataFrame], target: float | None = None) -> Table:
    """A table: seconds of training to each label's best dev measure, and to `target`.

    The default target is the highest value that all labels reach.
    """
    if missing := sorted(label for label, points in curves.items() if not len(points)):
        raise ValueError(f"{', '.join(missing)}: dev was not evaluated; set `evaluate:` in the recipe")
    best = {label: points.loc[points.value.idxmax()] for label, points in curves.items()}
    measure, *others = sorted({point.measure for point in best.values()})
    if others:
        raise ValueError(
            f"dev was evaluated by {' and '.join([measure, *others])}: compare runs with one measure"
        )
    target = min(point.value for point in best.values()) if target is None else target
    names = ["recipe", f"best dev {measure}", "its seconds", f"to {target:.4f} seconds", "after"]
    rows = []
    for label, points in curves.items():
        reached = points[points.value >= target]
        values = [label, float(best[label].value), float(best[label].seconds), None, None]
        if len(reached):
            first = reached.iloc[0]
            values[3:] = [float(first.seconds), f"{first.stage}, step {first.step}"]
        rows.append(dict(zip(names, values, strict=True)))
    return rows, names
