"""Where the time goes: the rows of ANCE's Table 6.

Source: Xiong et al. 2021, arXiv:2007.00808, Table 6.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.papers.studies.figures import Panel, bars, heights
from benchmarks.papers.studies.studied_run import Findings, Row, StudiedRun
from pyserini_ance.evaluation.tables import BM25
from pyserini_ance.pipeline.bm25_rankings import contents
from pyserini_ance.storage.files import read_json

CONSTRUCTION = ("encode_queries", "search", "filter")  # what gives the negatives, the vectors being there
# ANCE (FirstP), one 32 GB V100, MS MARCO documents: 10 hours, 4.5 ms a document, and so on.
PUBLISHED = {
    "BM25 index build": (10_800.0, None),
    "BM25 retrieval": (None, 37.0),
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
    take for as many queries. BM25 indexes and ranks anew, if the run has ranked by it: test queries in bulk,
    Java's start included. The rows of one query and of reranking are those of `rerank --time-first-stage`.
    """
    rows = [row for run in runs for row in _rows(run)]
    each = heights([row for row in rows if row["each ms"] is not None], "operation", "run", "each ms")
    panel = Panel("One document, query or batch", "operation", "milliseconds", bars(each, log_y=True))
    return Findings(rows, [panel])


def _rows(run: StudiedRun) -> Iterator[Row]:
    data, recipe = read_json(run.run.environment)["data"], run.recipe
    names = [recipe.train_name] if recipe.train_name in data["queries"] else recipe.train_split
    queries = sum(data["queries"][name] for name in names)
    batches = queries / recipe.stages[run.last_stage].batch_queries
    refreshes = [record["seconds"] for record in run.history.of_event("generation")]
    steps = [record["seconds"] for record in run.history.of_event("step")]
    bm25 = bm25_seconds(run) if BM25 in [row["row"] for row in run.results["rows"]] else ([], [])
    tested = data["queries"][recipe.final_evaluation.split[0]]
    measured = (
        ("BM25 index build", bm25[0], "", None),
        ("BM25 retrieval", bm25[1], "query", tested),
        ("encoding of the corpus", _done(refreshes, "encode_documents"), "document", data["documents"]),
        ("query encoding", _done(refreshes, "encode_queries"), "query", queries),
        ("index build", _done(refreshes, "build"), "", None),
        ("retrieval", _done(refreshes, "search"), "query", queries),
        ("dense retrieval in all", _done(refreshes, "encode_queries", "search"), "query", queries),
        ("negative construction per batch", _done(refreshes, *CONSTRUCTION), "batch", batches),
        ("training step", steps, "step", 1),
    )
    for operation, each, unit, count in measured:
        if each:
            seconds, (total, ms) = fmean(each), PUBLISHED[operation]
            yield {
                "run": run.name,
                "operation": operation,
                "per": unit or "run",
                "mean seconds": seconds,
                "each ms": 1000 * seconds / count if count else None,
                "ANCE seconds": total,
                "ANCE ms": ms,
            }


def bm25_seconds(run: StudiedRun) -> tuple[list[float], list[float]]:
    """The seconds in which BM25 indexes the documents, and ranks the test queries; of an index made elsewhere
    there are only the second."""
    from pyserini_ance.pyserini_bridge.bm25 import Bm25Job, retrieve

    bm25, hits = run.recipe.bm25, run.recipe.final_evaluation.hits
    assert bm25 is not None, "the run has ranked by it"
    queries = run.test_queries.split.queries
    texts = list(zip(queries.ids, queries.columns["text"], strict=True))
    with tempfile.TemporaryDirectory(dir=run.scratch.name) as name:
        index, starts = Path(f"{name}/index" if bm25.index == "build" else bm25.index), [time.perf_counter()]
        if bm25.index == "build":
            retrieve(contents(run.data.collection.documents), [], bm25, index)
            starts.append(time.perf_counter())
        retrieve((), [Bm25Job(texts, hits, Path(name) / "run")], bm25, index)
    *built, ranked = np.diff([*starts, time.perf_counter()]).tolist()
    return built, [ranked]


def _done(refreshes: Sequence[Row], *tasks: str) -> list[float]:
    """The seconds of the tasks in the refreshes that did them, those above a tenth of the longest: at other
    refreshes the results table or the dev evaluation has done them before."""
    each = [sum(of.get(task, 0.0) for task in tasks) for of in refreshes]
    return [seconds for seconds in each if seconds > max(each) / 10]
