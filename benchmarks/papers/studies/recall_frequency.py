"""Documents and queries by how often they are recalled: their number, their distance from the others, and how
well they are ranked for.

Source: Li et al. 2021 (DANCE), Sections 5.4 and 5.5, Figures 4 to 7.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.papers.studies.figures import Panel, bars, heights
from benchmarks.papers.studies.studied_run import Findings, NotKept, Row, StudiedRun
from pyserini_ance.data.trec import Run, best_first, read_qrels, read_run
from pyserini_ance.evaluation.metrics import per_query
from pyserini_ance.pipeline.final_evaluator import reversed_qrels
from pyserini_ance.recipe.evaluation_settings import parse_measures

MEASURE = "nDCG@10"
FREQUENCIES = ("never", "rare", "medium", "frequent")  # recalled 0, 1, 2 times, and more often
DISTANCES = ("close", "medium", "far")  # thirds by distance
PLURALS = {"document": "relevant documents", "query": "queries"}  # by side
SHOWN = (
    ("recall frequency", "number", "number of texts"),
    ("recall frequency", "distance", "mean cosine distance"),
    ("recall frequency", MEASURE, MEASURE),
    ("detaching distance", MEASURE, MEASURE),
)


def study(runs: Sequence[StudiedRun]) -> Findings:
    """By recall frequency, and by detaching distance: how many relevant documents and test queries there are,
    their mean detaching distance, and nDCG@10 of what they rank.

    The recall frequency of a document counts the test queries that have it among their first `top_k`, that of
    a query the relevant documents that have it so in query retrieval. The detaching distance is the mean
    cosine distance from all others of the group. Documents rank queries and the other way round, so a
    document's nDCG@10 is that of query retrieval.
    Differs from the paper: documents are those that are relevant to a test query, and there is a group for
    those that are never recalled.
    """
    rows = [row for run in runs for row in _rows(run)]
    named = [{**row, "name": f"{row['run']}: " * (len(runs) > 1) + PLURALS[row["side"]]} for row in rows]
    panels = []
    for by, quantity, unit in SHOWN:
        own = [row for row in named if row["by"] == by]
        drawn = bars(heights(own, "group", "name", quantity))
        panels.append(Panel(f"{by.capitalize()}: {unit}", by, unit, drawn))
    return Findings(rows, panels)


def _rows(run: StudiedRun) -> Iterator[Row]:
    split = run.recipe.final_evaluation.split[0]
    test = run.data.collection.split(split)
    if not test.is_judged:
        raise NotKept(f"split {split} of {run.run.folder} has no judgments")
    row = run.last_stage
    file = run.run.run_files / f"{row}.{split}.queries.trec"
    if not file.exists():
        raise NotKept(
            f"{file} is missing: the run has not ranked queries for documents; train with "
            f"final_evaluation.query_measures=[{MEASURE}]"
        )
    rankings = {"query": read_run(run.run.ranking(row, split)), "document": read_run(file)}
    qrels = read_qrels(run.run.qrels(split))
    judged = {"query": qrels, "document": reversed_qrels(qrels, test.qrels.threshold)}
    positives = test.known_positives("query")
    queries, relevant = positives.anchors, np.unique(positives.rows)
    of_queries = run.result.encode_queries(split, queries, precision="fp32")
    of_documents = run.document_vectors(relevant)
    for side, other, texts, rows, vectors in (
        ("document", "query", run.data.collection.documents, relevant, of_documents),
        ("query", "document", test.queries, queries, of_queries),
    ):
        # Documents are recalled by queries: in the rankings of queries.
        counts = recall_counts(rankings[other], run.settings.top_k)
        values = per_query(judged[side], rankings[side], parse_measures([MEASURE]))
        yield from group_rows(
            {"run": run.name, "side": side},
            [texts.ids[at] for at in rows.tolist()],
            counts,
            detaching_distances(vectors),
            {query: of[MEASURE] for query, of in values.items()},
        )


def recall_counts(ranking: Run, k: int) -> Counter[str]:
    """How many rankings have each id among their first k."""
    return Counter(id for scores in ranking.values() for id in best_first(scores)[:k])


def detaching_distances(vectors: np.ndarray) -> np.ndarray:
    """(N,) the mean cosine distance of each of `vectors` (N, D) from the others; NaN for a single one."""
    unit = vectors.astype(np.float64) / np.linalg.norm(vectors, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return 1 - (unit @ unit.sum(0) - 1) / (len(unit) - 1) if len(unit) > 1 else np.full(len(unit), np.nan)


def group_rows(
    about: Row, ids: Sequence[str], counts: Counter[str], distances: np.ndarray, values: Mapping[str, float]
) -> Iterator[Row]:
    """A row for each group by frequency, then for each third by distance; an empty group has no means."""
    frequency = np.array([min(counts[id], 3) for id in ids])
    third = np.empty(len(ids), int)
    third[np.argsort(distances, kind="stable")] = np.arange(len(ids)) * 3 // max(1, len(ids))
    for by, names, of in (
        ("recall frequency", FREQUENCIES, frequency),
        ("detaching distance", DISTANCES, third),
    ):
        for number, name in enumerate(names):
            chosen = np.flatnonzero(of == number)
            measured = [values[ids[at]] for at in chosen.tolist() if ids[at] in values]
            yield {
                **about,
                "by": by,
                "group": name,
                "number": len(chosen),
                "distance": float(distances[chosen].mean()) if len(chosen) else None,
                MEASURE: float(np.mean(measured)) if measured else None,
            }
