"""`pyserini-ance evaluate`: measure run files against judgments or answers."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pyserini_ance.commands import parsing

MEASURES = ("nDCG@10", "RR@10", "R@100")
OVERLAP_CUTOFF = 100  # of Overlap without @k
ANSWERED = "Success@k: share of the questions with an answer in one of the first k passages"
DETAILS = f"""Measures are those of ir-measures, and two of ANCE's: Hole@k, the share of the first k that is
not judged, and Overlap@k (default: {OVERLAP_CUTOFF}), the share that is in the first k of the run --overlap,
too; both are means over the judged queries with hits in the run. Files may be .gz. Default measures:
{" ".join(MEASURES)}; with --answers Success@5, @20 and @100.

With --answers, the measures are Success@k: how often the first k passages contain an answer. Without --run,
the rankings of the results table are measured on the questions of the test splits (if a split has judgments,
on its judged questions). With --run, any rankings over the same passages are measured on the
questions of a split or of a file (nq-test.qa.csv: all the papers' test questions)."""
EXAMPLE = """pyserini-ance evaluate --run run.trec --qrels qrels.txt --measures nDCG@10 R@100
  pyserini-ance evaluate --answers runs/nq-ance --measures Success@20 Success@100"""


@parsing.command(EXAMPLE, DETAILS)
def main(
    run: Annotated[list[Path] | None, parsing.option("FILE ...", "TREC or MS MARCO runs, a row each")] = None,
    qrels: parsing.QrelsFile = None,
    answers: Annotated[
        Path | None, parsing.option("RUN", "measure by the answers of this run's questions")
    ] = None,
    measures: Annotated[list[str] | None, parsing.option("MEASURE ...", "default: see below")] = None,
    overlap: Annotated[Path | None, parsing.option("FILE", "add Overlap@k with this run")] = None,
    output: Annotated[Path | None, parsing.output_file("FILE.json", "also write, with each query")] = None,
    questions: Annotated[
        Path | None, parsing.option("FILE", "with --answers: DPR's file of questions (.csv, .txt, .json)")
    ] = None,
    regular_expressions: Annotated[
        bool,
        parsing.flag("regular-expressions", "with --answers: they are regular expressions (CuratedTREC)"),
    ] = False,
    split: parsing.Split = None,
) -> None:
    """Measure run files against judgments or answers."""
    if answers:
        reason = "--answers measures Success@k"
        parsing.refuse_options(reason, qrels=qrels, overlap=overlap, output=output)
        _measure_answers(answers, run or (), questions, split, measures or (), regular_expressions)
    elif run and qrels:
        reason = "--run measures files, each of one split, by --qrels"
        parsing.refuse_options(
            reason, split=split, questions=questions, regular_expressions=regular_expressions
        )
        _measure_files(run, qrels, measures or MEASURES, overlap, output)
    else:
        parsing.refuse(
            "pass --run with --qrels, or --answers; a run directory has the judgments of a split as "
            "qrels.SPLIT.txt"
        )


def _measure_files(
    runs: Sequence[Path], qrels_file: Path, names: Sequence[str], overlap: Path | None, output: Path | None
) -> None:
    from pyserini_ance.data.trec import read_qrels, read_run
    from pyserini_ance.evaluation.metrics import report_on
    from pyserini_ance.evaluation.tables import table_with_legend
    from pyserini_ance.recipe.evaluation_settings import parse_measures
    from pyserini_ance.storage.files import check_not_input, write_json

    if output:
        check_not_input(output, [*runs, qrels_file, *([overlap] if overlap else [])])
    holes, overlaps = _cutoffs(names, "Hole@"), _cutoffs(names, "Overlap@")
    if (overlaps and not overlap) or len(overlaps) > 1:
        parsing.refuse("Overlap@k is measured once, against the run of --overlap FILE")
    measures = parse_measures(one for one in names if not one.startswith(("Hole@", "Overlap@")))
    other = read_run(overlap) if overlap else None
    qrels = read_qrels(qrels_file)
    are_distinct = len({path.name for path in runs}) == len(runs)
    rows: list[dict[str, Any]] = []
    records: list[dict[str, Any]] = []
    notes: dict[str, str] = {}
    for path in runs:
        run = read_run(path)
        label = path.name if are_distinct else str(path)
        totals, by_query = report_on(qrels, run, measures, holes, other, (overlaps or [OVERLAP_CUTOFF])[0])
        rows.append({"run": label} | totals)
        records.append({"run": str(path), "measures": totals, "per_query": by_query})
        missing = len(qrels.keys() - run.keys())
        unjudged = len(run.keys() - qrels.keys())
        counts = f"{len(qrels)} judged queries, {missing} of them without any hit"
        counts += " (they count as 0)" if measures else ""
        more = f"; {unjudged} queries of the run are not judged and not counted" if unjudged else ""
        notes[label] = counts + more
    columns = list(records[0]["measures"])
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        header = {"qrels": str(qrels_file), "queries": len(qrels)}
        write_json(output, header | ({"overlap": str(overlap)} if overlap else {}) | {"runs": records})
    distinct = set(notes.values())
    lines = distinct if len(distinct) == 1 else map(": ".join, notes.items())
    print(table_with_legend(rows, ["run", *columns], *lines))


def _cutoffs(names: Sequence[str], kind: str) -> list[int]:
    """The k of each measure such as Hole@k."""
    numbers = [name.removeprefix(kind) for name in names if name.startswith(kind)]
    for number in numbers:
        if not number.isdecimal() or int(number) == 0:
            parsing.refuse(f"unknown measure {kind}{number}; expected a whole number, as in {kind}10")
    return list(map(int, numbers))


def _measure_answers(
    folder: Path,
    runs: Sequence[Path],
    questions: Path | None,
    split: str | None,
    measures: Sequence[str],
    regular_expressions: bool,
) -> None:
    if questions and (split or not runs):
        parsing.refuse("--questions requires --run with rankings of these questions, and excludes --split")
    if others := [name for name in measures if not name.startswith("Success@")]:
        parsing.refuse(f"--answers measures Success@k, not {' '.join(others)}")
    logging.basicConfig(format="%(message)s")
    from pyserini_ance.evaluation.answer_measures import CUTOFFS, coverage, measure_by_answers, success_at
    from pyserini_ance.evaluation.tables import read_results, table_with_legend
    from pyserini_ance.reports.ranking_inputs import open_ranking
    from pyserini_ance.runs.rundir import RunDir

    run = RunDir.find(folder)
    run.check()
    cutoffs = _cutoffs(measures, "Success@") or CUTOFFS
    tests = run.read_final_evaluation()
    tested = tests.split
    if runs:
        if len(tested) > 1 and not (split or questions):
            several = "the recipe has several test splits; pass that of these rankings"
            parsing.refuse(f"{several}: --split {' or '.join(tested)}")
        opened = (({"run": str(file)}, open_ranking(str(folder), file, split, questions)) for file in runs)
    else:
        opened = (
            ({"row": row["row"], "split": one}, open_ranking(f"{folder}:{row['row']}", split=one))
            for one in ([split] if split else tested)
            for row in read_results(folder)["rows"]
        )
    rows: list[dict[str, Any]] = []
    for cells, ranked in opened:
        asked = ranked.run, ranked.queries, ranked.collection.documents
        if runs or tests.hits < max(cutoffs):
            shares = coverage(*asked, cutoffs, regular_expressions)
        else:  # a row of an approximate index may be shorter
            shares = measure_by_answers(*asked, success_at(cutoffs), regular_expressions)
        rows.append({**cells, "questions": len(ranked.queries), **shares})
    print(table_with_legend(rows, list(rows[0]), ANSWERED))
