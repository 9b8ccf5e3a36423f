"""The runs of a comparison: each seed once, rows by folder, and what variants of a recipe differ in."""

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.evaluation.tables import last_stage, read_results
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.variant import SHOWN, differences
from pyserini_ance.reports.run_comparison import Results, have_equal_measures, labels
from pyserini_ance.runs.provenance import hashed_settings, seeds_of
from pyserini_ance.runs.rundir import RunDir

log = logging.getLogger(__name__)


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
        same = next((other for other, known in earlier if _measure_the_same(known, results)), None)
        if same:
            log.warning(
                "%s repeats %s: the same recipe, settings, seed and measures; it is not counted", run, same
            )
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
            by_tag = variants[result["recipe"]]
            by_tag.setdefault(f"[{result['config_hash'][:6]}]", hashed_settings(recipe))
    return [
        f"{tag}: {'; '.join(differing[:SHOWN])}{more}"
        for by_tag in variants.values()
        for tag, differing in zip(by_tag, _differing(list(by_tag.values())), strict=True)
        for more in [f"; and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""]
        if tag in tags and differing
    ]


def _differing(variants: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """By variant, its values of the settings that are not the same in all."""
    first, *others = variants
    changes = [{key: (old, new) for key, old, new in differences(first, other)} for other in others]
    of_first = {key: old for changed in changes for key, (old, _) in changed.items()}
    return [
        [f"{key}={changed[key][1] if key in changed else old}" for key, old in of_first.items()]
        for changed in [{}, *changes]
    ]


def _recipe(run: Path) -> Recipe | None:
    """The recipe of a run, if this version reads it."""
    try:
        return RunDir(run).read_recipe()
    except (FileNotFoundError, RuntimeError, ValueError):
        return None


def _measure_the_same(one: Results, other: Results) -> bool:
    measures = one["measures"]
    rows = last_stage(one["rows"]), last_stage(other["rows"])
    return bool(other["measures"] == measures and have_equal_measures(*rows, measures))
