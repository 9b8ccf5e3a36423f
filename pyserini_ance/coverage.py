"""`python -m pyserini_ance.coverage RUN`: how often the first k passages hold an answer, of a run directory's rankings.

Without --run those of its closing table, for the questions of its test splits (those that have a relevant passage, where any is judged);
with --run any rankings over the same passages, for the questions of a split or of a file: --questions nq-test.qa.csv has all of the papers'
test questions.
"""

import argparse
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyserini_ance import cli
from pyserini_ance.data.collection import Collection, Texts
from pyserini_ance.data.formats.dpr import read_questions
from pyserini_ance.data.trec import read_run
from pyserini_ance.experiment.collection import collection_of, collection_with
from pyserini_ance.measures.compare import read_results
from pyserini_ance.measures.coverage import CUTOFFS, coverage
from pyserini_ance.measures.table import table
from pyserini_ance.recipe.load import load
from pyserini_ance.runs.rundir import RunDir


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.coverage", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="RUN", help="a run directory: its recipe knows passages and questions")
    parser.add_argument("--run", type=Path, nargs="+", metavar="FILE", help="TREC runs, instead of the rankings of its closing table")
    parser.add_argument("--questions", type=Path, metavar="FILE", help="DPR's questions with answers (.csv, .txt, .json), instead of a split's")
    parser.add_argument("--split", help="this split's questions (default: each test split's)")
    parser.add_argument("--cutoffs", type=cli.from_one_on, nargs="+", default=CUTOFFS, metavar="K", help="default: 5 20 100")
    parser.add_argument("--regular-expressions", action="store_true", help="answers are regular expressions (CuratedTREC)")
    args = parser.parse_args(arguments)
    if args.questions and (args.split or not args.run):
        parser.error("--questions goes with --run, whose rankings are of these questions, and without --split")
    logging.basicConfig(format="%(message)s")
    folder = RunDir(args.folder)
    collection = collection_of(folder)
    tested = list(load(folder.recipe).recipe.test.split)
    splits = [args.split] if args.split else tested
    if not args.run and args.split and args.split not in tested:
        parser.error(f"the closing table ranks {' and '.join(tested)} only; give rankings of split {args.split} by --run")
    if args.run and not args.questions and len(splits) > 1:
        parser.error(f"the recipe has several test splits; say of which these rankings are: --split {' or '.join(splits)}")
    rows = []
    for ranking, questions, about in _asked(args, folder, collection, splits):
        found = coverage(read_run(ranking), questions, collection.documents, args.cutoffs, args.regular_expressions)
        rows.append({**about, "questions": len(questions), **found})
    print(table(rows, list(rows[0])))


def _asked(args: argparse.Namespace, folder: RunDir, collection: Collection, splits: Sequence[str]) -> Iterator[tuple[Path, Texts, dict]]:
    """Rankings, the questions that they are of, and what the table calls them."""
    if args.run:
        known = collection if args.questions or splits[0] in collection.splits else collection_with(load(folder.recipe).recipe, splits[0])
        questions = read_questions(args.questions) if args.questions else known.split(splits[0]).queries
        yield from ((ranking, questions, {"run": str(ranking)}) for ranking in args.run)
        return
    names = [row["row"] for row in read_results(folder.folder)["rows"]]
    for split in splits:
        yield from ((folder.ranking(name, split), collection.split(split).queries, {"row": name, "split": split}) for name in names)


if __name__ == "__main__":
    cli.run(main)
