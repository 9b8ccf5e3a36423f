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

from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines

CUTOFF = 100
COLUMNS = {"forgotten": "forgotten", "learnt": "learnt", f"train RR@{CUTOFF}": "mean"}


@dataclass(frozen=True)
class Episode:
    """Between two generations of negatives, named `<stage>-<step>` by the places that they were mined for: the shares of the training
    queries whose RR@100 fell (`forgotten`) and rose (`learnt`), and its mean after it.
    """

    since: str
    until: str
    forgotten: float
    learnt: float
    mean: float


def episodes(run: Path) -> list[Episode]:
    """Those of a run, from the ranks of the positives that `metrics.jsonl` has of each generation.

    Ranks are those in the ranking that was mined, so RR@100 asks for a mining depth of 100. Raises ValueError for a run that mines for
    other training queries each time (`refresh.chunks`).
    """
    stages = load(RunDir(run).recipe).recipe.stages
    if chunked := [name for name, stage in stages.items() if stage.refresh and stage.refresh.chunks > 1]:
        raise ValueError(f"{run}: stage {chunked[0]} has refresh.chunks, which mine for other training queries each time; forgetting needs the same")
    records = [record for record in read_json_lines(RunDir(run).metrics) if record["event"] == "generation"]
    found = {f"{r['stage']}-{r['of']}": values for r in records if (values := _reciprocal_ranks(stages[r["stage"]], r["tables"])) is not None}
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
        raise ValueError("none of these runs has mined with its own model twice; forgetting is from one refresh to the next")
    rows = [
        {"recipe": label, "since": since, "until": until, "runs": len(group)}
        | {name: fmean(getattr(episode, key) for episode in group) for name, key in COLUMNS.items()}
        for (label, since, until), group in of_runs.items()
    ]
    return rows, ["recipe", "since", "until", "runs", *COLUMNS]


def _episode(since: str, old: np.ndarray, until: str, new: np.ndarray) -> Episode:
    return Episode(since, until, float((new < old).mean()), float((new > old).mean()), float(new.mean()))


def _reciprocal_ranks(stage: Stage, tables: Mapping[str, Mapping]) -> np.ndarray | None:
    """(Q,) the training queries' RR@100 in a generation; None when it was not mined with them."""
    of_queries = [report for name, report in tables.items() if stage.terms[name.rpartition(".")[0]].anchor == "query"]
    ranks = next((report["positive_ranks"] for report in of_queries if "positive_ranks" in report), None)
    return None if ranks is None else np.array([1 / rank if rank and rank <= CUTOFF else 0.0 for rank in ranks])
