"""Quality by the documents that refreshes encode: all, a sample, or the oldest part, and what they recall."""

from collections.abc import Sequence

import numpy as np

from benchmarks.papers.studies.figures import Panel, lines_of, points
from benchmarks.papers.studies.studied_run import Findings, NotKept, Row, StudiedRun
from pyserini_ance.evaluation.tables import last_stage


def study(runs: Sequence[StudiedRun]) -> Findings:
    """For each run the documents that all its refreshes encoded, the mean recall of the exact top k that they
    measured (1: none corrected vectors), the seconds of refreshes, and the result's measures. Runs of a name
    have one colour."""
    rows = [_row(run) for run in runs]
    measure = str(runs[0].results["measures"][0])
    of_name = lines_of(rows, "recipe", "documents", measure)
    x_label = "documents encoded by refreshes"
    return Findings(rows, [Panel(f"{measure} by {x_label}", x_label, measure, points(of_name))])


def _row(run: StudiedRun) -> Row:
    encoded = [record["encoded"] for record in run.history.of_event("generation") if "encoded" in record]
    if not encoded:
        raise NotKept(f"{run.run.folder}: no refresh encoded documents, or an older version made the run")
    result = last_stage(run.results["rows"])
    return {
        "run": run.name,
        "recipe": run.results["recipe"],
        "documents": sum(of["documents"] for of in encoded),
        "recall": float(np.mean([of.get("recall", 1.0) for of in encoded])),
        "refresh seconds": result["refresh seconds"],
        **{measure: result[measure] for measure in run.results["measures"]},
    }
