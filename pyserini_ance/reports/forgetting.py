"""Forgetting: the share of training queries whose ranking got worse from one refresh to the next.

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, section 3.2 and Figure 4.
"""

import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyserini_ance.negatives.mined import AUTO, MinedSource
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.generation import read_positive_ranks
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import TRAINING_RANKS_CUTOFF as CUTOFF
from pyserini_ance.runs.rundir import RunDir, step_of
from pyserini_ance.storage.files import read_json_lines

log = logging.getLogger(__name__)


class RefreshInterval(NamedTuple):
    """The change of RR@100 over the training queries between two checkpoints, named `<stage>-<step>`.

    Checkpoints are those that negatives were mined with, and the run's result. `forgotten` and `learnt` are
    the shares of queries whose RR@100 fell and rose; `mean` is the mean RR@100 at the end of the interval.
    """

    since: str
    until: str
    forgotten: float
    learnt: float
    mean: float


def refresh_intervals(run: Path) -> list[RefreshInterval]:
    """The intervals of a run. Raises as `reciprocal_ranks`."""
    return intervals_of(reciprocal_ranks(run))


def intervals_of(ranks: Mapping[str, np.ndarray]) -> list[RefreshInterval]:
    """The intervals between consecutive checkpoints, from RR@100 (Q,) at each."""
    return [
        RefreshInterval(since, until, float((new < old).mean()), float((new > old).mean()), float(new.mean()))
        for (since, old), (until, new) in pairwise(ranks.items())
    ]


def reciprocal_ranks(run: Path) -> dict[str, np.ndarray]:
    """RR@100 (Q,) of the training queries at each checkpoint, from the ranks that each adopted generation
    of negatives holds.

    The run's result is the last checkpoint, if the last stage has mined and no negatives were mined with that
    checkpoint or a later one. Raises ValueError for a run that mines for different queries at each refresh
    (`refresh.query_chunks`, `min_candidates`), and for rankings too short for RR@100: a missing positive may
    be within rank 100. Raises FileNotFoundError if a generation was removed.
    """
    files = RunDir(run)
    stages = files.read_recipe().stages
    if partial := [name for name, stage in stages.items() if not stage.mines_all_queries]:
        raise ValueError(
            f"{run}: stage {partial[0]} has refresh.query_chunks, refresh.positives_top_k or min_candidates, "
            "with which each refresh has tables of different training queries; forgetting needs the same"
        )
    records = read_json_lines(files.metrics)
    ranks: dict[tuple[str, int], np.ndarray] = {}
    for record in (record for record in records if record["event"] == "generation"):
        adopted = _ranks(files, stages[record["stage"]], record)
        if adopted is not None:
            ranks[record["stage"], record["checkpoint_step"]] = adopted
    for record in (record for record in records if record["event"] == "training_queries"):
        mined, evaluated = record["precisions"]["mined"], record["precisions"]["evaluated"]
        if mined != evaluated:
            message = "%s: the interval up to the run's result is missing: mined in %s and evaluated in %s"
            log.warning(message, run, mined, evaluated)
            continue
        ends = RunLog(files, writes=False).decisions("stage_end")
        [*_, ended] = [end["result"] for end in ends if end["stage"] == record["stage"]]
        result = record["stage"], step_of(ended)  # the last checkpoint of the stage, or the best
        if all(result > mined for mined in ranks if mined[0] == result[0]):
            ranks[result] = np.load(files.training_ranks, allow_pickle=False)
    return {
        f"{stage}-{step}": np.where((found > 0) & (found <= CUTOFF), 1 / np.maximum(found, 1), 0.0)
        for (stage, step), found in ranks.items()
    }


def forgetting(runs: Sequence[tuple[str, Path]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and columns of a table: the intervals of each label, averaged over its runs.

    `runs`: (label, run directory). Raises ValueError if no run has an interval.
    """
    lines = [{"recipe": label, **one._asdict()} for label, run in runs for one in refresh_intervals(run)]
    if not lines:
        cure = "forgetting is measured from one refresh to the next, or to the run's result"
        raise ValueError(f"none of these runs has mined with its own model twice; {cure}")
    groups = pd.DataFrame(lines).groupby(["recipe", "since", "until"], sort=False)
    table = groups.mean().rename(columns={"mean": f"train RR@{CUTOFF}"})
    table.insert(0, "runs", groups.size())
    table = table.reset_index()
    return table.to_dict("records"), list(table)


def _ranks(run: RunDir, stage: Stage, adoption: Mapping[str, Any]) -> np.ndarray | None:
    """The ranks (Q,) of the training queries' positives by the model of an adopted generation, 0 beyond its
    ranking.

    Returns None if the generation was not mined with the queries.
    """
    generation = run.generation(adoption["stage"], adoption["checkpoint_step"])
    for name, report in adoption["tables"].items():
        term, _, position = name.rpartition(".")
        source = stage.terms[term].negatives[int(position)]
        ranked = [leaf for leaf in source.components if leaf.scores_comparable]
        if not ranked or "positives" not in report or stage.terms[term].anchor != "query":
            continue
        ranks = read_positive_ranks(generation, name)
        assert ranks is not None, f"{generation} reports ranks of {name} and has none"
        depths = [getattr(leaf, "top_k", 0) for leaf in ranked]
        top_k = max(  # the report has the number behind `top_k: auto`
            (report["top_k"] if depth == AUTO else depth)
            + (leaf.extra_for_filters if isinstance(leaf, MinedSource) else 0)
            for leaf, depth in zip(ranked, depths, strict=True)
        )
        if any(getattr(leaf, "top_k_unit", None) == "passage" for leaf in ranked):
            top_k = 1  # they may all be passages of one long document
        if top_k < CUTOFF and (missing := int((ranks == 0).sum())):
            key = f"stages.{adoption['stage']}.terms.{term}.negatives.{position}"
            raise ValueError(
                f"{run.folder}: forgetting is measured by RR@{CUTOFF}, but {key} ({source.kind}) of its "
                f"recipe ranks as few as {top_k} documents, where {missing} of {len(ranks)} queries have no "
                f"positive; train with a top_k of {CUTOFF} documents or more there"
            )
        return ranks
    return None
