"""`pyserini-ance evaluate`: measure run files against judgments or answers, or compare two query by query."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from pyserini_ance.commands import parsing

if TYPE_CHECKING:
    from pyserini_ance.data.trec import Qrels, Run

MEASURES = ("nDCG@10", "RR@10", "R@100")
CUTOFFS = (5, 20, 100)
COMPARED = "RR@10"
SHOWN = 10
CHARACTERS = 300  # of each text that --compare-queries shows
OF_RUNS = ("Hole@", "Overlap@")
ENDINGS = (".json", ".csv")  # of --output
ANSWERED = "Success@k: share of the questions with an answer in one of the first k passages"
DETAILS = f"""Measures are those of ir-measures, and two of ANCE's: Hole@k, the share of the first k that is
not judged, and Overlap@k (default: 100), both means over the judged queries with hits in the run.

With --answers, the measures are Success@k: how often the first k passages contain an answer. Without --run,
the rankings of the results table are measured on the questions of the test splits (if a split has judgments,
on its questions with a relevant passage). With --run, any rankings over the same passages are measured on the
questions of a split or of a file (nq-test.qa.csv: all the papers' test questions).

--compare-queries lists, as Markdown, the queries that a ranking wins and loses most against another one of
the same data and test split. A ranking is {parsing.RANKING}."""
EXAMPLE = """pyserini-ance evaluate --run run.trec --qrels qrels.txt --measures nDCG@10 R@100
  pyserini-ance evaluate --answers runs/nq-ance --measures Success@20 Success@100
  pyserini-ance evaluate --compare-queries runs/demo-ance runs/demo-ance:bm25 --measures nDCG@10"""


@parsing.command(EXAMPLE, DETAILS)
def main(
    run: Annotated[
        list[Path] | None,
        Option(metavar="FILE ...", help="runs of TREC or MS MARCO, plain or .gz; several give a row each"),
    ] = None,
    qrels: parsing.QrelsFile = None,
    answers: Annotated[
        Path | None, Option(metavar="RUN", help="measure by the answers of this run directory's questions")
    ] = None,
    compare_queries: Annotated[
        list[str] | None, Option(metavar="RANKING RANKING", help="compare two rankings query by query")
    ] = None,
    measures: Annotated[
        list[str] | None,
        Option(
            metavar="MEASURE ...",
            help=f"default: {' '.join(MEASURES)}; with --answers: Success@k for k of "
            f"{', '.join(map(str, CUTOFFS))}; with --compare-queries: {COMPARED}",
        ),
    ] = None,
    overlap: Annotated[
        Path | None,
        Option(
            metavar="FILE", help="add Overlap@k: the share of the first k that this run has among its own"
        ),
    ] = None,
    per_query: Annotated[bool, Option("--per-query", help="also show each judged query")] = False,
    output: Annotated[
        Path | None, parsing.output(parsing.output_file, "FILE", "also write the measures as .json or .csv")
    ] = None,
    questions: Annotated[
        Path | None,
        Option(metavar="FILE", help="with --answers: DPR's file of questions (.csv, .txt, .json)"),
    ] = None,
    regular_expressions: Annotated[
        bool,
        Option("--regular-expressions", help="with --answers: they are regular expressions (CuratedTREC)"),
    ] = False,
    split: parsing.Split = None,
    first: Annotated[
        int | None,
        Option(min=1, metavar="N", help=f"show the N most different queries of a side (default: {SHOWN})"),
    ] = None,
) -> None:
    """Measure run files against judgments or answers, or compare two rankings query by query."""
    if not answers:
        parsing.refuse_options(
            "--answers is missing", questions=questions, regular_expressions=regular_expressions
        )
    if not compare_queries:
        parsing.refuse_options("--compare-queries is missing", first=first)
    if answers or compare_queries:
        reason = f"{'--answers' if answers else '--compare-queries'} has its own measures"
        of_files = {"overlap": overlap, "per_query": per_query, "output": output}
        parsing.refuse_options(reason, qrels=qrels, **of_files)
    if compare_queries:
        parsing.refuse_options("--compare-queries names its rankings", run=run, answers=answers)
        _compare_queries(compare_queries, (measures or [COMPARED])[0], split, first or SHOWN)
    elif answers:
        _measure_answers(answers, run, questions, split, measures, regular_expressions)
    elif run and qrels:
        parsing.refuse_options("a file is a ranking of one split", split=split)
        _measure_files(run, qrels, measures or MEASURES, overlap, per_query, output)
    elif run:
        parsing.refuse(f"--run needs --qrels: the judgments of its queries. {_qrels_of_runs(run)}")
    else:
        parsing.refuse("pass --run with --qrels, --answers or --compare-queries")


def _measure_files(
    runs: Sequence[Path],
    qrels_file: Path,
    names: Sequence[str],
    overlap: Path | None,
    per_query: bool,
    output: Path | None,
) -> None:
    from pyserini_ance.data.rankings import read_ranked
    from pyserini_ance.data.trec import read_qrels
    from pyserini_ance.evaluation.legends import table_with_legend
    from pyserini_ance.evaluation.metrics import CUTOFF, RunReport
    from pyserini_ance.evaluation.tables import as_csv
    from pyserini_ance.recipe.evaluation_settings import parse_measures
    from pyserini_ance.storage.files import check_not_input, write_json, write_whole

    if output:
        if output.suffix not in ENDINGS:
            parsing.refuse(f"--output {output}: measures are written as {' or '.join(ENDINGS)}")
        check_not_input(output, [*runs, qrels_file, *([overlap] if overlap else [])])
    holes, overlaps = ([_cutoff(name) for name in names if name.startswith(kind)] for kind in OF_RUNS)
    if (overlaps and not overlap) or len(overlaps) > 1:
        parsing.refuse("Overlap@k is measured once, against the run of --overlap FILE")
    measures = parse_measures([name for name in names if not name.startswith(OF_RUNS)] or MEASURES)
    other = read_ranked(overlap) if overlap else None
    try:
        qrels = read_qrels(qrels_file)
    except (OSError, ValueError) as error:
        raise ValueError(f"--qrels: {error}. {_qrels_of_runs(runs)}") from error
    report = RunReport(qrels, measures, holes, other, (overlaps or [CUTOFF])[0])
    are_distinct = len({path.name for path in runs}) == len(runs)
    labels = [path.name if are_distinct else str(path) for path in runs]
    rows: list[dict[str, Any]] = []
    records: list[dict[str, Any]] = []
    notes = []
    for label, path in zip(labels, runs, strict=True):
        run = read_ranked(path)
        totals = report.totals(run)
        by_query = report.per_query(run) if per_query else {}
        rows += [{"run": label, "query": query} | values for query, values in by_query.items()]
        rows.append({"run": label, "query": "all"} | totals)
        records.append(
            {"run": str(path), "measures": totals} | ({"per_query": by_query} if per_query else {})
        )
        notes.append(_query_counts(qrels, run))
    if output and output.suffix == ".csv":
        write_whole(output, as_csv(rows, ["run", "query", *records[0]["measures"]]))
    elif output:
        header = {"qrels": str(qrels_file), "queries": len(qrels)}
        write_json(output, header | ({"overlap": str(overlap)} if overlap else {}) | {"runs": records})
    columns = ["run"] if len(records) > 1 else []
    columns += ["query"] if len(records) == 1 or per_query else []
    counts = notes[:1] if len(set(notes)) == 1 else map(": ".join, zip(labels, notes, strict=True))
    print(table_with_legend(rows, [*columns, *records[0]["measures"]], *counts))


def _cutoff(name: str) -> int:
    kind, _, number = name.partition("@")
    if not (number.isascii() and number.isdecimal() and int(number)):
        parsing.refuse(f"{name}: expected {kind}@k with a whole number k from 1 on")
    return int(number)


def _qrels_of_runs(runs: Sequence[Path]) -> str:
    """Where the judgments of these runs may be: in the run directory that they are in, or in `runs/` of."""
    folders = dict.fromkeys(folder for run in runs for folder in (run.parent, run.parent.parent))
    found = [str(path) for folder in folders for path in sorted(folder.glob("qrels.*.txt"))]
    if found:
        return f"The run directory has: {', '.join(found)}"
    return "A run directory has the judgments of its splits as RUN/qrels.SPLIT.txt"


def _query_counts(qrels: "Qrels", run: "Run") -> str:
    judged, with_hits, unjudged = len(qrels), len(qrels.keys() & run.keys()), len(run.keys() - qrels.keys())
    text = f"{judged} judged queries, {judged - with_hits} of them without any hit (they count as 0)"
    return f"{text}; {unjudged} queries of the run are not judged and not counted" if unjudged else text


def _measure_answers(
    folder: Path,
    runs: Sequence[Path] | None,
    questions_file: Path | None,
    split: str | None,
    measures: Sequence[str] | None,
    regular_expressions: bool,
) -> None:
    if questions_file and (split or not runs):
        parsing.refuse("--questions requires --run with rankings of these questions, and excludes --split")
    if others := [name for name in measures or () if not name.startswith("Success@")]:
        parsing.refuse(f"--answers measures Success@k, not {' '.join(others)}")
    cutoffs = [_cutoff(name) for name in measures or ()] or CUTOFFS
    logging.basicConfig(format="%(message)s")
    from pyserini_ance.data.formats.dpr import read_questions
    from pyserini_ance.data.trec import read_run
    from pyserini_ance.evaluation.answer_measures import coverage
    from pyserini_ance.evaluation.legends import table_with_legend
    from pyserini_ance.evaluation.tables import read_results
    from pyserini_ance.reports.ranking_inputs import collection_of, collection_with
    from pyserini_ance.runs.rundir import RunDir

    run = RunDir(folder)
    collection = collection_of(run)
    tested = list(run.read_final_evaluation().split)
    splits = [split] if split else tested
    if not runs and split and split not in tested:
        rankings = f"the results table ranks {' and '.join(tested)} only"
        parsing.refuse(f"{rankings}; pass rankings of split {split} with --run")
    if runs and not questions_file and len(splits) > 1:
        several = "the recipe has several test splits; pass that of these rankings"
        parsing.refuse(f"{several}: --split {' or '.join(splits)}")
    if runs and not questions_file and splits[0] not in collection.splits:
        collection = collection_with(run.read_recipe(), splits[0])
    if runs:
        asked = read_questions(questions_file) if questions_file else collection.split(splits[0]).queries
        rankings_of = [(ranking, asked, {"run": str(ranking)}) for ranking in runs]
    else:
        names = [row["row"] for row in read_results(run.folder)["rows"]]
        rankings_of = [
            (run.ranking(name, each), collection.split(each).queries, {"row": name, "split": each})
            for each in splits
            for name in names
        ]
    rows = []
    for ranking, asked, cells in rankings_of:
        shares = coverage(read_run(ranking), asked, collection.documents, cutoffs, regular_expressions)
        rows.append({**cells, "questions": len(asked), **shares})
    print(table_with_legend(rows, list(rows[0]), ANSWERED))


def _compare_queries(rankings: Sequence[str], measure: str, split: str | None, shown: int) -> None:
    from pyserini_ance.reports.query_comparison import compare_queries

    if len(set(rankings)) != 2 or len(rankings) != 2:
        parsing.refuse("pass two different rankings")
    run, other = rankings
    print(compare_queries(run, other, measure, split, CHARACTERS).as_markdown(shown))
