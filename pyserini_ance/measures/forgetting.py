"""Forgetting: the training queries on which a model has become worse since the last episode.

Source: Sun et al. 2022 (ANCE-Tele), arXiv:2210.17167, section 3.2 and Figure 4.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np

from pyserini_ance.negatives.source import MinedSource, Source
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.rundir import RunDir, step_of
from pyserini_ance.storage.files import read_json_lines

CUTOFF = 100
COLUMNS = {"forgotten": "forgotten", "learnt": "learnt", f"train RR@{CUTOFF}": "mean"}


@dataclass(frozen=True)
class Episode:
    """Between two generations of negatives, or the last one and the run's result, named `<stage>-<step>` by the places that they were mined
    for, and that of the result: the shares of the training queries whose RR@100 fell (`forgotten`) and rose (`learnt`), and its mean after it.
    """

    since: str
    until: str
    forgotten: float
    learnt: float
    mean: float


def episodes(run: Path) -> list[Episode]:
    """Those of a run, from the ranks of the positives that `metrics.jsonl` has of each generation, and of the run's
    result where the last stage has mined: of its best checkpoint, unless negatives were mined with that one or a later one.

    Raises ValueError for a run that mines for other training queries each time (`refresh.chunks`), and for one whose rankings are too short
    for RR@100: where a positive is in none, nobody knows whether it is beyond rank 100.
    """
    stages = load(RunDir(run).recipe).recipe.stages
    if chunked := [name for name, stage in stages.items() if stage.refresh and stage.refresh.chunks > 1]:
        raise ValueError(f"{run}: stage {chunked[0]} has refresh.chunks, which mine for other training queries each time; forgetting needs the same")
    records = read_json_lines(RunDir(run).metrics)
    generations = [record for record in records if record["event"] == "generation"]
    ranks = {(r["stage"], r["of"]): found for r in generations if (found := _ranks(run, r["stage"], stages[r["stage"]], r["tables"])) is not None}
    for record in (record for record in records if record["event"] == "training_queries"):
        result = record["stage"], _result_step(run, record["stage"])
        if all(result > mined for mined in ranks if mined[0] == result[0]):
            ranks[result] = record["positive_ranks"]
    found = {f"{stage}-{of}": _reciprocal(of_queries) for (stage, of), of_queries in ranks.items()}
    return [_episode(*before, *after) for before, after in pairwise(found.items())]


def forgetting(runs: Sequence[tuple[str, Path]]) -> tuple[list[dict], list[str]]:
    """Rows and columns of a table: the mean over the runs of each label that has episodes, by episode. `runs`: (label, run directory).

    Raises ValueError when none has.
    """
    of_runs: dict[tuple[str, str, str], list[Episode]] = defaultdict(list)
    for label, run in runs:
        for episode in episodes(run):
            of_runs[label, episode.since, episode.until].append(episode)
    if not of_runs:
        raise ValueError("none of these runs has mined with its own model twice; forgetting is from one refresh to the next, or to the run's result")
    rows = [
        {"recipe": label, "since": since, "until": until, "runs": len(group)}
        | {name: fmean(getattr(episode, key) for episode in group) for name, key in COLUMNS.items()}
        for (label, since, until), group in of_runs.items()
    ]
    return rows, ["recipe", "since", "until", "runs", *COLUMNS]


def _episode(since: str, old: np.ndarray, until: str, new: np.ndarray) -> Episode:
    return Episode(since, until, float((new < old).mean()), float((new > old).mean()), float(new.mean()))


def _result_step(run: Path, stage: str) -> int:
    """The step of the checkpoint that the stage has come to: the last, or the best."""
    [*_, ended] = [record for record in read_json_lines(RunDir(run).decisions) if record["event"] == "stage_end" and record["stage"] == stage]
    return step_of(ended["result"])


def _ranks(run: Path, name: str, stage: Stage, tables: Mapping[str, Mapping]) -> Sequence[int | None] | None:
    """(Q,) of the training queries' positives in a generation, None beyond the ranking; None when it was not mined with the queries."""
    for place, report in tables.items():
        term, _, position = place.rpartition(".")
        if "positive_ranks" not in report or stage.terms[term].anchor != "query":
            continue
        ranks, source = report["positive_ranks"], stage.terms[term].negatives[int(position)]
        depth = _depth(source)
        if depth < CUTOFF and (beyond := sum(rank is None for rank in ranks)):
            key = f"stages.{name}.terms.{term}.negatives.{position}"
            raise ValueError(
                f"{run}: forgetting is of RR@{CUTOFF}, but {key} ({source.kind}) of its recipe has depth {depth}, where {beyond} of {len(ranks)} "
                f"queries have no positive; train with a depth of {CUTOFF} or more there"
            )
        return ranks
    return None


def _depth(source: Source) -> int:
    """How many documents the ranking of the queries has, at the least."""
    ranked = (leaf for leaf in source.leaves if leaf.ranked)
    return max(leaf.most_candidates(0) + (leaf.guarded_depth if isinstance(leaf, MinedSource) else 0) for leaf in ranked)


def _reciprocal(ranks: Sequence[int | None]) -> np.ndarray:
    """(Q,) RR@100."""
    return np.array([1 / rank if rank and rank <= CUTOFF else 0.0 for rank in ranks])
