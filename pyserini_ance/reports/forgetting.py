"""Forgetting: the share of training queries whose ranking got worse from one refresh to the next.

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, section 3.2 and Figure 4.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from pyserini_ance.negatives.mined import AUTO, MinedSource
from pyserini_ance.negatives.source import Source
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.generation import read_positive_ranks
from pyserini_ance.runs.rundir import TRAINING_RANKS_CUTOFF as CUTOFF
from pyserini_ance.runs.rundir import RunDir, step_of
from pyserini_ance.storage.files import read_json_lines

log = logging.getLogger(__name__)
COLUMNS = {"forgotten": "forgotten", "learnt": "learnt", f"train RR@{CUTOFF}": "mean"}


@dataclass(frozen=True)
class RefreshInterval:
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
    return [_interval(*before, *after) for before, after in pairwise(ranks.items())]


def reciprocal_ranks(run: Path) -> dict[str, np.ndarray]:
    """RR@100 (Q,) of the training queries at each checkpoint, from the ranks that each adopted generation
    of negatives holds.

    The run's result is the last checkpoint, if the last stage has mined and no negatives were mined with that
    checkpoint or a later one. Raises ValueError for a run that mines for different queries at each refresh
    (`refresh.query_chunks`, `min_candidates`), and for rankings too short for RR@100: a missing positive may
    be within rank 100. Raises FileNotFoundError if a generation was removed (`retention.keep_negatives`).
    """
    stages = RunDir(run).read_recipe().stages
    if partial := [name for name, stage in stages.items() if not stage.mines_all_queries]:
        raise ValueError(
            f"{run}: stage {partial[0]} has refresh.query_chunks, refresh.positives_top_k or min_candidates, "
            "with which each refresh has tables of different training queries; forgetting needs the same"
        )
    records = read_json_lines(RunDir(run).metrics)
    generations = [record for record in records if record["event"] == "generation"]
    ranks: dict[tuple[str, int], np.ndarray] = {}
    for record in generations:
        stage = record["stage"]
        of_positives = _ranks(run, stage, stages[stage], record)
        if of_positives is not None:
            ranks[stage, record["checkpoint_step"]] = of_positives
    for record in (record for record in records if record["event"] == "training_queries"):
        if record["precisions"]["mined"] != record["precisions"]["evaluated"]:
            log.warning(
                "%s: the interval up to the run's result is missing, because documents were mined in %s and "
                "evaluated in %s; train with final_evaluation.precision and encoding.precision alike",
                run,
                record["precisions"]["mined"],
                record["precisions"]["evaluated"],
            )
            continue
        result = record["stage"], _result_step(run, record["stage"])
        if all(result > mined for mined in ranks if mined[0] == result[0]):
            ranks[result] = np.load(RunDir(run).training_ranks, allow_pickle=False)
    return {f"{stage}-{step}": _reciprocal(of_positives) for (stage, step), of_positives in ranks.items()}


def forgetting(runs: Sequence[tuple[str, Path]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and columns of a table: the intervals of each label, averaged over its runs.

    `runs`: (label, run directory).

    Raises ValueError if no run has an interval.
    """
    groups: dict[tuple[str, str, str], list[RefreshInterval]] = defaultdict(list)
    for label, run in runs:
        for interval in refresh_intervals(run):
            groups[label, interval.since, interval.until].append(interval)
    if not groups:
        raise ValueError(
            "none of these runs has mined with its own model twice; forgetting is measured from one refresh "
            "to the next, or to the run's result"
        )
    rows = [
        {"recipe": label, "since": since, "until": until, "runs": len(group)}
        | {name: fmean(getattr(interval, key) for interval in group) for name, key in COLUMNS.items()}
        for (label, since, until), group in groups.items()
    ]
    return rows, ["recipe", "since", "until", "runs", *COLUMNS]


def _interval(since: str, old: np.ndarray, until: str, new: np.ndarray) -> RefreshInterval:
    return RefreshInterval(
        since, until, float((new < old).mean()), float((new > old).mean()), float(new.mean())
    )


def _result_step(run: Path, stage: str) -> int:
    """The step of the checkpoint that is the stage's result: the last, or the best."""
    [*_, ended] = [
        record
        for record in read_json_lines(RunDir(run).decisions)
        if record["event"] == "stage_end" and record["stage"] == stage
    ]
    return step_of(ended["result"])


def _ranks(run: Path, stage_name: str, stage: Stage, adoption: Mapping[str, Any]) -> np.ndarray | None:
    """The ranks (Q,) of the training queries' positives by the model of an adopted generation, 0 beyond its
    ranking.

    Returns None if the generation was not mined with the queries.
    """
    generation = RunDir(run).generation(stage_name, adoption["checkpoint_step"])
    for name, report in adoption["tables"].items():
        term, _, position = name.rpartition(".")
        source = stage.terms[term].negatives[int(position)]
        by_model = any(leaf.scores_comparable for leaf in source.components)
        if not by_model or "positives" not in report or stage.terms[term].anchor != "query":
            continue
        ranks = read_positive_ranks(generation, name)
        assert ranks is not None, f"{generation} reports ranks of {name} and has none"
        top_k = _ranked_documents(source, report.get("top_k"))
        if top_k < CUTOFF and (missing := int((ranks == 0).sum())):
            key = f"stages.{stage_name}.terms.{term}.negatives.{position}"
            raise ValueError(
                f"{run}: forgetting is measured by RR@{CUTOFF}, but {key} ({source.kind}) of its recipe "
                f"ranks as few as {top_k} documents, where {missing} of {len(ranks)} queries have no "
                f"positive; train with a top_k of {CUTOFF} documents or more there"
            )
        return ranks
    return None


def _ranked_documents(source: Source, auto_top_k: int | None) -> int:
    """The least number of documents that a query's ranking has; `auto_top_k` is that of `top_k: auto`."""
    ranked = [leaf for leaf in source.components if leaf.scores_comparable]
    if any(getattr(leaf, "top_k_unit", None) == "passage" for leaf in ranked):
        return 1  # they may all be passages of one long document
    return max(
        (auto_top_k if auto_top_k and getattr(leaf, "top_k", None) == AUTO else leaf.max_candidates(0))
        + (leaf.filtered_candidates if isinstance(leaf, MinedSource) else 0)
        for leaf in ranked
    )


def _reciprocal(ranks: np.ndarray) -> np.ndarray:
    """RR@100 (Q,) of the positives' ranks, which are 0 beyond the ranking."""
    return np.where((ranks > 0) & (ranks <= CUTOFF), 1 / np.maximum(ranks, 1), 0.0)
