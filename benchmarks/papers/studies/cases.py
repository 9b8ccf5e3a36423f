"""Cases: the test queries that a run wins and loses most, with the first documents of both rankings.

Sources: Xiong et al. 2021 (ANCE), arXiv:2007.00808, appendix A.5; Li et al. 2021 (DANCE), Table 4.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.papers.studies.figures import Line, Panel, lines
from benchmarks.papers.studies.studied_run import Findings, NotKept, Row, StudiedRun
from pyserini_ance.data.collection import Texts
from pyserini_ance.data.trec import best_first, read_run
from pyserini_ance.evaluation.metrics import differences, per_query, row_of
from pyserini_ance.evaluation.tables import BM25, UNTRAINED
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.reports.ranking_inputs import collection_of, common_qrels, ranking_file
from pyserini_ance.runs.rundir import RunDir

MEASURE, OTHER = "nDCG@10", "other nDCG@10"
SHOWN = 3
Others = Mapping[str, tuple[RunDir, str | None]]  # a run and its row, or its final ranking


def study(runs: Sequence[StudiedRun]) -> Findings:
    """The first run against each other one; a single run against its own row of BM25, or else of the
    untrained encoder: the judged queries of the first test split from the largest win to the largest loss."""
    run, split = runs[0].run, runs[0].recipe.final_evaluation.split[0]
    others: Others = {one.name: (one.run, None) for one in runs[1:]} or _own_baseline(run, split)
    collection = collection_of(run)
    queries, documents = collection.split(split).queries, collection.documents
    rows: list[Row] = []
    summary: list[Row] = []
    curves: dict[str, Line] = {}
    notes: list[str] = []
    for name, other in others.items():
        qrels = common_qrels([run, other[0]], split)
        if qrels is None:
            raise NotKept(f"{run.folder} has no judgments of split {split}, which is judged by answers")
        rankings = [read_run(ranking_file(*of, split)) for of in ((run, None), other)]
        ours, theirs = (per_query(qrels, one, parse_measures([MEASURE])) for one in rankings)
        gains = {query: ours[query][MEASURE] - theirs[query][MEASURE] for query in qrels}
        found = differences({name: np.array([*gains.values()])}, np.zeros(len(gains)))[name]
        counts = f"{found.wins} won, {found.ties} tied, {found.losses} lost"
        notes.append(f"against {name}: {counts}; mean difference {found}")
        curves[f"against {name}"] = Line(range(1, len(gains) + 1), sorted(gains.values(), reverse=True))
        own: list[Row] = []
        for query in sorted(qrels, key=gains.__getitem__, reverse=True):
            text = queries.columns["text"][queries.rows[query]]
            row = {"against": name, "query": query, "text": text, **ours[query]}
            first, second = (_first(documents, qrels[query], one.get(query, {})) for one in rankings)
            own.append({**row, OTHER: theirs[query][MEASURE], "first": first, "other first": second})
        rows += own
        summary += own[: min(SHOWN, found.wins)] + own[len(own) - min(SHOWN, found.losses) :]
    panel = Panel("The largest win first", "test query", f"gain in {MEASURE}", lines(curves, points=False))
    shown = [
        {key: value["first"] if isinstance(value, dict) else value for key, value in row.items()}
        | {"text": " ".join(row["text"].split())[:60]}
        for row in summary
    ]
    return Findings(rows, [panel], shown, notes)


def _first(documents: Texts, grades: Mapping[str, int], hits: Mapping[str, float]) -> Row:
    """Id, grade and text of the document at rank 1; without hits, the id is empty."""
    if not hits:
        return {"first": ""}
    document = best_first(hits)[0]
    text = " ".join(" ".join(documents[row_of(documents, document)].values()).split())
    return {"first": document, "grade": str(grades.get(document, "not judged")), "text": text}


def _own_baseline(run: RunDir, split: str) -> Others:
    for row in (BM25, UNTRAINED):
        if run.ranking(row, split).exists():
            return {row: (run, row)}
    raise NotKept(
        f"{run.folder} has ranked neither by BM25 nor by the untrained encoder; name another run, or train "
        "with final_evaluation.rows=[bm25,untrained]"
    )
