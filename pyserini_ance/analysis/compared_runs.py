"""The runs that a comparison is about: each seed of a row once."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.analysis.run_comparison import Results, have_equal_measures
from pyserini_ance.evaluation.tables import last_stage, read_results
from pyserini_ance.runs.provenance import seeds_of
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
        seeds = _seeds(run)
        earlier = alike[results.get("recipe"), results.get("config_hash"), seeds or run]
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


def _seeds(run: Path) -> tuple[int, ...]:
    """The seeds of a run; empty where it has no recipe that this version reads."""
    try:
        return seeds_of(RunDir(run).read_recipe())
    except (FileNotFoundError, RuntimeError, ValueError):
        return ()


def _measure_the_same(one: Results, other: Results) -> bool:
    measures = one["measures"]
    rows = last_stage(one["rows"]), last_stage(other["rows"])
    return bool(other["measures"] == measures and have_equal_measures(*rows, measures))
