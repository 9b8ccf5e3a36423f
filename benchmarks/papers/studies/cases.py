"""Cases: the test queries that a run wins and loses most, with the first documents of both rankings.

Sources: Xiong et al. 2021 (ANCE), arXiv:2007.00808, appendix A.5; Li et al. 2021 (DANCE), Table 4.
"""

from collections.abc import Iterable, Sequence

from benchmarks.papers.studies.figures import Line, Panel, lines
from benchmarks.papers.studies.studied_run import Findings, NotKept, Row, StudiedRun
from pyserini_ance.evaluation.tables import BM25, UNTRAINED
from pyserini_ance.reports.query_comparison import compare_queries

MEASURE, SHOWN = "nDCG@10", 3


def study(runs: Sequence[StudiedRun]) -> Findings:
    """The first run against each other one; a single run against its own row of BM25, or else of the
    untrained encoder. The numbers are those of `evaluate --compare-queries`, by nDCG@10."""
    first, split = str(runs[0].run.folder), runs[0].recipe.final_evaluation.split[0]
    if not runs[0].run.qrels(split).exists():
        raise NotKept(f"{first} has no judgments of split {split}; `coverage` measures it by its answers")
    others = {run.name: str(run.run.folder) for run in runs[1:]} or _own_baseline(runs[0])
    rows: list[Row] = []
    summary: list[Row] = []
    curves: dict[str, Line] = {}
    notes = []
    for name, other in others.items():
        comparison = compare_queries(first, other, MEASURE, split)
        difference = comparison.difference
        counts = f"{difference.wins} won, {difference.ties} tied, {difference.losses} lost"
        notes.append(f"against {name}: {counts}; mean difference {difference}")
        gains = [value - of_other for value, of_other in comparison.values.values()]
        curves[f"against {name}"] = Line(range(1, len(gains) + 1), gains)
        own: list[Row] = []
        for query, values in comparison.values.items():
            text = comparison.queries.columns["text"][comparison.queries.rows[query]]
            firsts = (comparison.first(query, run) for run in comparison.rankings.values())
            own.append({"against": name, "query": query, "text": text, **_columns(values, firsts)})
        rows += own
        summary += own[: min(SHOWN, difference.wins)] + own[len(own) - min(SHOWN, difference.losses) :]
    label = f"difference in {MEASURE}"
    panel = Panel("The largest win first", "test query", label, lines(curves, points=False))
    shown = [
        {key: value["first"] if isinstance(value, dict) else value for key, value in row.items()}
        | {"text": " ".join(row["text"].split())[:60]}
        for row in summary
    ]
    return Findings(rows, [panel], shown, notes)


def _columns(values: Iterable[float], firsts: Iterable[dict[str, str]]) -> Row:
    """Both rankings' measures, then their first documents: id, grade and text."""
    names = ("", "other ")
    return {
        **{f"{name}{MEASURE}": value for name, value in zip(names, values, strict=True)},
        **{f"{name}first": first for name, first in zip(names, firsts, strict=True)},
    }


def _own_baseline(run: StudiedRun) -> dict[str, str]:
    split = run.recipe.final_evaluation.split[0]
    for row in (BM25, UNTRAINED):
        if run.run.ranking(row, split).exists():
            return {row: f"{run.run.folder}:{row}"}
    raise NotKept(
        f"{run.run.folder} has ranked neither by BM25 nor by the untrained encoder; name another run, or "
        "train with final_evaluation.rows=[bm25,untrained]"
    )
