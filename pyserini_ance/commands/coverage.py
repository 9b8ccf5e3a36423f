"""`pyserini-ance coverage`: how often the first k passages contain an answer."""

import argparse
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyserini_ance.commands import console

if TYPE_CHECKING:
    from pyserini_ance.data.collection import Collection, Texts
    from pyserini_ance.runs.rundir import RunDir

CUTOFFS = (5, 20, 100)
LEGEND = "Success@k: share of the questions with an answer in one of the first k passages"
DETAILS = """Without --run, the rankings of the results table are measured on the questions of the test splits
(if a split has judgments, on its questions with a relevant passage). With --run, any rankings over the same
passages are measured on the questions of a split or of a file
(nq-test.qa.csv: all the papers' test questions)."""
EXAMPLE = "pyserini-ance coverage runs/nq-ance --cutoffs 20 100"


def main(arguments: list[str] | None = None) -> None:
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.questions and (args.split or not args.run):
        parser.error("--questions requires --run with rankings of these questions, and excludes --split")
    logging.basicConfig(format="%(message)s")
    from pyserini_ance.data.trec import read_run
    from pyserini_ance.evaluation.answer_measures import coverage
    from pyserini_ance.evaluation.legends import table_with_legend
    from pyserini_ance.pipeline.ranking_inputs import collection_of
    from pyserini_ance.runs.rundir import RunDir

    run = RunDir(args.folder)
    collection = collection_of(run)
    tested = list(run.read_final_evaluation().split)
    splits = [args.split] if args.split else tested
    if not args.run and args.split and args.split not in tested:
        parser.error(
            f"the results table ranks {' and '.join(tested)} only; pass rankings of split "
            f"{args.split} with --run"
        )
    if args.run and not args.questions and len(splits) > 1:
        parser.error(
            f"the recipe has several test splits; pass that of these rankings: --split {' or '.join(splits)}"
        )
    rows = []
    for ranking, questions, cells in _rankings(args, run, collection, splits):
        hits = read_run(ranking)
        shares = coverage(
            hits, questions, collection.documents, args.cutoffs or CUTOFFS, args.regular_expressions
        )
        rows.append({**cells, "questions": len(questions), **shares})
    print(table_with_legend(rows, list(rows[0]), LEGEND))


def _parser() -> argparse.ArgumentParser:
    parser = console.command_parser(
        "coverage", "Measure how often the first k passages of a ranking contain an answer.", EXAMPLE, DETAILS
    )
    parser.add_argument(
        "folder",
        type=Path,
        metavar="RUN",
        help="a run directory, whose recipe has the passages and questions",
    )
    rankings = parser.add_argument_group("rankings and questions")
    rankings.add_argument(
        "--run",
        type=Path,
        nargs="+",
        action="extend",
        metavar="FILE",
        help="measure these TREC runs instead of the rankings of the results table",
    )
    console.add_questions(rankings)
    rankings.add_argument("--split", help="the split of the questions (default: each test split)")
    measuring = parser.add_argument_group("measuring")
    measuring.add_argument(
        "--cutoffs",
        type=console.positive_int,
        nargs="+",
        action="extend",
        metavar="K",
        help="numbers of passages (default: 5 20 100)",
    )
    measuring.add_argument(
        "--regular-expressions", action="store_true", help="answers are regular expressions (CuratedTREC)"
    )
    return parser


def _rankings(
    args: argparse.Namespace, run: "RunDir", collection: "Collection", splits: Sequence[str]
) -> "Iterator[tuple[Path, Texts, dict[str, str]]]":
    """The rankings to measure, the questions of each, and the cells that name it in the table."""
    from pyserini_ance.evaluation.tables import read_results

    if args.run:
        questions = _questions(args, run, collection, splits[0])
        yield from ((ranking, questions, {"run": str(ranking)}) for ranking in args.run)
        return
    names = [row["row"] for row in read_results(run.folder)["rows"]]
    for split in splits:
        queries = collection.split(split).queries
        yield from ((run.ranking(name, split), queries, {"row": name, "split": split}) for name in names)


def _questions(args: argparse.Namespace, run: "RunDir", collection: "Collection", split: str) -> "Texts":
    from pyserini_ance.data.formats.dpr import read_questions
    from pyserini_ance.pipeline.ranking_inputs import collection_with

    if args.questions:
        return read_questions(args.questions)
    if split not in collection.splits:
        collection = collection_with(run.read_recipe(), split)
    return collection.split(split).queries
