"""The index that is searched in training against the index that is searched in evaluation.

Source: Zhan et al. 2020 (LTRe), arXiv:2010.10469, Table 4.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean

import pandas as pd

from benchmarks.papers.studies.figures import Panel, heat_map, heights
from benchmarks.papers.studies.studied_run import Findings, NotKept, Row, StudiedRun
from pyserini_ance.evaluation.tables import last_stage
from pyserini_ance.reports.compare import EXACT
from pyserini_ance.vectors.faiss_index import FLAT


def study(runs: Sequence[StudiedRun]) -> Findings:
    """The first measure of each run's result by the index that ranks; a line for each training index, the
    mean over its runs (seeds). A stage without live negatives trains on exact search."""
    rows = [row for run in runs for row in _rows(run)]
    if all(row["evaluation_index"] == EXACT for row in rows):
        raise NotKept(
            "none of these runs was evaluated with another index; train with "
            "final_evaluation.indexes=['OPQ24,IVF1,PQ24', ...]"
        )
    measure = str(runs[0].results["measures"][0])
    by_index = pd.DataFrame(rows).groupby(["training_index", "evaluation_index"], sort=False)
    averaged = by_index[measure].agg(fmean).reset_index().to_dict("records")
    means = heights(averaged, "training_index", "evaluation_index", measure)
    panel = Panel(measure, "evaluation index", "training index", heat_map(means))
    summary = [{"training index": train, **by_index} for train, by_index in means.items()]
    return Findings(rows, [panel], summary)


def _rows(run: StudiedRun) -> Iterator[Row]:
    results = run.results
    last = last_stage(results["rows"])
    for row in results["rows"]:
        name, _, index = str(row["row"]).partition("+")
        if name == last["row"]:
            measured = {measure: row[measure] for measure in results["measures"]}
            indexes = {"training_index": training_index(run), "evaluation_index": index or EXACT}
            yield {"run": run.name, **indexes, **measured}


def training_index(run: StudiedRun) -> str:
    """The index that the last stage searches; EXACT without live negatives."""
    sources = run.recipe.stages[run.last_stage].components
    index = next((str(getattr(source, "index", FLAT)) for source in sources if source.live), FLAT)
    return EXACT if index == FLAT else index
