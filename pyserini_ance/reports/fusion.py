"""Fusion of rankings, measured by the judgments of the run directories that they belong to.

A ranking is a TREC file, or a name (FOLDER, FOLDER:ROW) that stands for a ranking of each test split.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from pyserini_ance.data.trec import Qrels, Run, has_ranks, read_run, without_own, write_run
from pyserini_ance.evaluation.answer_measures import measure_by_answers
from pyserini_ance.evaluation.metrics import evaluate
from pyserini_ance.evaluation.tables import BM25
from pyserini_ance.pyserini_bridge.searchers import WEIGHTED, WEIGHTS, fuse
from pyserini_ance.recipe.components import similar_name
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.reports import ranking_inputs
from pyserini_ance.runs.rundir import RunDir

MEASURES = ("nDCG@10", "RR@10", "R@100")  # of files alone


def fuse_rankings(
    names: Sequence[str],
    method: str,
    output: Path,
    split: str | None = None,
    weight: float | None = None,
    choose_on: str | None = None,
    measures: Sequence[str] = (),
    qrels: Qrels | None = None,
) -> tuple[list[dict[str, Any]], dict[float, float]]:
    """Write the fused run. Returns the rows of a table, each ranking and then their fusion, and with
    `choose_on` the first measure of each weight on that split, of which the best is used.

    A run directory alone is fused with its BM25 row. split, measures: by default the first test split of the
    first run directory, and the recipe's measures. qrels: replace the judgments of the run directories.
    Raises FileNotFoundError for a ranking that does not exist, ValueError for rankings that cannot be fused.
    """
    runs: dict[Path, RunDir] = {}
    files = [name for name in names if Path(name).is_file()]
    for name in (name for name in names if name not in files):
        run, row = ranking_inputs.parse_ranking_name(name)
        if not run.folder.is_dir():
            raise FileNotFoundError(
                f"{run.folder} is neither a run directory nor a file{similar_name(run.folder)}; pass a TREC "
                "run, FOLDER or FOLDER:ROW"
            )
        runs[run.folder] = run
        if len(names) == 1 and row != BM25:
            names = [f"{run.folder}:{BM25}", name]
    if len(names) < 2 or (method == WEIGHTED and len(names) > 2):
        expected = "two rankings" if method == WEIGHTED else "two rankings or more"
        cure = "pass a run directory alone to fuse it with its BM25"
        raise ValueError(f"{method} fuses {expected}, given: {', '.join(names)}; {cure}")
    if ranked := [name for name in files if method != "rrf" and has_ranks(Path(name))]:
        raise ValueError(f"{ranked[0]} has ranks without scores, which {method} needs; fuse by rrf")
    if split and not runs:
        raise ValueError(f"a file is a ranking of one split; remove --split {split}")
    tests = [run.read_final_evaluation() for run in runs.values()]
    measured = split or next((test.split[0] for test in tests), "")
    if choose_on and (files or choose_on == measured):
        of_one = f"{', '.join(files)} is of one split" if files else f"{measured!r} is the measured split"
        raise ValueError(f"{of_one}; choose the weight on another split of run directories than --split")
    measures = measures or [str(one) for one in next((t.measures_of(measured) for t in tests), MEASURES)]
    tried: dict[float, float] = {}
    if choose_on:
        rankings = _read(names, choose_on, runs.values())
        judge = _judge(runs.values(), choose_on, measures[:1])
        for one in WEIGHTS:
            (tried[one],) = judge(fuse(rankings, method, one)).values()
        weight = max(tried, key=lambda one: tried[one])  # the first of equal ones
    rankings = _read(names, measured, runs.values())  # a missing one is reported before a collection is read
    judge = _judge(runs.values(), measured, measures, qrels)
    column = f"ranking of {measured}" if measured else "ranking"
    rows = [{column: name, **judge(run)} for name, run in zip(names, rankings, strict=True)]
    fused = fuse(rankings, method, weight)
    hits = ((query, document, score) for query, of in fused.items() for document, score in of.items())
    output.parent.mkdir(parents=True, exist_ok=True)
    write_run(output, hits, method)
    label = method if weight is None else f"{method}, weight {weight:g}"
    return [*rows, {column: label, **judge(fused)}], tried


def _judge(
    runs: Collection[RunDir], split: str, measures: Sequence[str], qrels: Qrels | None = None
) -> Callable[[Run], dict[str, float]]:
    """A function that measures a ranking by `qrels`, or by the judgments of the run directories.

    A split without judgments is measured by the answers that passages contain.
    """
    parsed = parse_measures(measures)
    if qrels is None and not runs:
        raise ValueError("rankings alone do not say which documents are relevant; pass --qrels FILE")
    judgments = qrels or ranking_inputs.common_qrels(runs, split)
    if judgments is not None:
        return lambda run: evaluate(judgments, run, parsed)
    collections = [ranking_inputs.collection_of(run) for run in runs]
    questions, documents = collections[0].split(split).queries, collections[0].documents
    if len({(one.split(split).queries.digest, one.documents.digest) for one in collections}) > 1:
        folders = ", ".join(str(run.folder) for run in runs)
        raise ValueError(f"{folders} have different questions or passages; pass runs over the same data")
    return lambda run: measure_by_answers(run, questions, documents, parsed)


def _read(names: Sequence[str], split: str, runs: Collection[RunDir]) -> list[Run]:
    """The rankings of a split; files are read as the data of the run directories says."""
    own_out = any(run.ignores_identical_ids() for run in runs)
    files = [
        Path(name)
        if Path(name).is_file()
        else ranking_inputs.ranking_file(*ranking_inputs.parse_ranking_name(name), split)
        for name in names
    ]
    return [without_own(run) if own_out else run for run in map(read_run, files)]
