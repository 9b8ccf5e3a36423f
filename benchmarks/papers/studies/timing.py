"""Where the time goes: the rows of ANCE's Table 6, and the seconds and speed-up of LTRe's Table 3.

Sources: Xiong et al. 2021, arXiv:2007.00808, Table 6; Zhan et al. 2020, arXiv:2010.10469, Table 3.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

import pandas as pd

from benchmarks.papers.studies.figures import Panel, bars, heights
from benchmarks.papers.studies.studied_run import Findings, Row, StudiedRun
from pyserini_ance.evaluation.tables import BM25, SECONDS
from pyserini_ance.storage.files import read_json, read_json_object

TITLE = "Time by operation"
CONSTRUCTION = ("encode_queries", "search", "filter")  # what gives the negatives, the vectors being there
REST = "the rest"  # as `RunHistory.seconds` calls it
SHOWN = 6  # parts of the whole run, in colours that differ
# ANCE (FirstP), one 32 GB V100, MS MARCO documents: 10 hours, 4.5 ms a document, and so on.
PUBLISHED = {
    "encoding of the corpus": (36_000.0, 4.5),
    "query encoding": (None, 2.6),
    "index build": (10.0, None),
    "retrieval": (None, 9.0),
    "dense retrieval in all": (None, 11.6),
    "negative construction per batch": (None, 72.0),
    "training step": (None, 19.0),
}


def study(runs: Sequence[StudiedRun]) -> Findings:
    """Seconds and milliseconds by operation, means over the refreshes that record it, with the paper's.

    Differs from Table 6: the queries are those of training, encoded and searched in bulk; retrieval is exact;
    a training step has its forward pass too; a batch's negatives are what encoding, searching and filtering
    take for as many queries. The rows of one query, of BM25 and of reranking are those of `rerank
    --time-first-stage`. `training` is steps, refreshes and waiting; its `speedup` is against the first run
    (LTRe, Table 3).
    """
    rows = [row for run in runs for row in _rows(run)]
    totals = {row["run"]: row["mean seconds"] for row in rows if row["operation"] == "training"}
    first = totals[runs[0].name]
    for row in rows:
        if row["operation"] == "training":
            row["speedup"] = first / row["mean seconds"] if row["mean seconds"] else None
    seconds = {run.name: run.history.seconds(read_json_object(run.run.measures)) for run in runs}
    minutes = {name: {part: of / 60 for part, of in parts.items()} for name, parts in seconds.items()}
    each = heights([row for row in rows if row["each ms"] is not None], "operation", "run", "each ms")
    panels = [
        Panel("The whole run", "run", "minutes", bars(_largest(minutes), stacked=True)),
        Panel("One document, query or batch", "operation", "milliseconds", bars(each, log_y=True)),
    ]
    return Findings(rows, panels)


def _largest(minutes: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """The minutes of each run's parts; all but the SHOWN parts that take longest are the rest."""
    totals = pd.DataFrame(minutes).sum(axis=1).drop(REST, errors="ignore")
    shown = totals.nlargest(SHOWN).index
    return {
        run: {part: of_run.get(part, 0.0) for part in shown}
        | {REST: sum(of_part for part, of_part in of_run.items() if part not in shown)}
        for run, of_run in minutes.items()
    }


def _rows(run: StudiedRun) -> Iterator[Row]:
    data, training = read_json(run.run.environment)["data"], run.recipe.train_split
    names = [training.name] if training.name in data["queries"] else training.splits
    queries = sum(data["queries"][name] for name in names)
    batches = queries / run.recipe.stages[run.last_stage].batch_queries
    refreshes = [record["seconds"] for record in run.history.of_event("generation")]
    results = run.results["rows"]
    trained = [record for record in results if "train seconds" in record]
    timed = [key for key in SECONDS if key != "test seconds"]
    steps = [record["seconds"] for record in run.history.of_event("step")]
    measured = (
        (
            "BM25 index and retrieval",
            [row["test seconds"] for row in results if row["row"] == BM25],
            "",
            None,
        ),
        ("encoding of the corpus", _done(refreshes, "encode_documents"), "document", data["documents"]),
        ("query encoding", _done(refreshes, "encode_queries"), "query", queries),
        ("index build", _done(refreshes, "build"), "", None),
        ("retrieval", _done(refreshes, "search"), "query", queries),
        ("dense retrieval in all", _done(refreshes, "encode_queries", "search"), "query", queries),
        ("negative construction per batch", _done(refreshes, *CONSTRUCTION), "batch", batches),
        ("training step", steps, "step", 1),
        ("training", [sum(row.get(key) or 0.0 for row in trained for key in timed)], "", None),
    )
    for operation, each, unit, count in measured:
        if each:
            seconds, (total, ms) = fmean(each), PUBLISHED.get(operation, (None, None))
            yield {
                "run": run.name,
                "operation": operation,
                "per": unit or "run",
                "mean seconds": seconds,
                "each ms": 1000 * seconds / count if count else None,
                "ANCE seconds": total,
                "ANCE ms": ms,
            }


def _done(refreshes: Sequence[Row], *tasks: str) -> list[float]:
    """The seconds of the tasks in the refreshes that did them, those above a tenth of the longest: at other
    refreshes the results table or the dev evaluation has done them before."""
    each = [sum(of.get(task, 0.0) for task in tasks) for of in refreshes]
    return [seconds for seconds in each if seconds > max(each) / 10]
