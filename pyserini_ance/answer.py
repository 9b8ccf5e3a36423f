"""`python -m pyserini_ance.answer RUN --reader KIND --model NAME --output FOLDER`: questions answered from the passages that were found.

RUN is a run directory (its final ranking), or FOLDER:ROW for a row of its closing table; --run FILE is any other ranking, and then a
recipe will do for RUN. Started again with the same --output it goes on where it stopped.
"""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from pyserini_ance import cli
from pyserini_ance.distributed.interruption import interrupt_on_termination
from pyserini_ance.recipe.parts import kinds

DEPTHS = (1, 5, 20, 100)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = _parser()
    args = parser.parse_intermixed_args(arguments)
    if args.questions and (args.split or not args.run):
        parser.error("--questions goes with --run, whose ranking is of these questions, and without --split")
    logging.basicConfig(format="%(message)s")
    interrupt_on_termination()
    import torch

    from pyserini_ance.experiment.answer import Answering, make_reader
    from pyserini_ance.experiment.ranked import open_ranked
    from pyserini_ance.measures.table import table

    reader = make_reader(args.reader, args.model, args.settings)
    ranked = open_ranked(args.source, args.run, args.split, args.questions)
    answering = Answering(ranked, tuple(sorted(set(args.first))), args.output)
    answering.begin(reader)
    answering.read(reader.open(args.device or ("cuda" if torch.cuda.is_available() else "cpu")))
    rows = answering.rows(args.regular_expressions)
    print(table(rows, list(rows[0])))
    without = len(ranked.queries) - len(ranked.asked)
    print(f"{len(ranked.queries)} questions, {without} of them without any passage (they count as wrong); predictions in {args.output}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.answer", description=__doc__)
    parser.add_argument("source", metavar="RUN|RECIPE", help="FOLDER of a run, FOLDER:ROW for a row of its closing table, or a recipe and --run")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="settings of the reader, such as answer_tokens=10")
    parser.add_argument("--run", type=Path, metavar="FILE", help="this TREC run's passages")
    parser.add_argument("--split", help="whose questions are asked (default: the first test split)")
    parser.add_argument("--questions", type=Path, metavar="FILE", help="DPR's questions with answers (.csv, .txt, .json), instead of a split's")
    parser.add_argument("--reader", choices=kinds("reader"), default="extractive", help="default: %(default)s")
    parser.add_argument("--model", required=True, help="a hub name or a folder")
    parser.add_argument("--first", type=cli.from_one_on, nargs="+", default=DEPTHS, metavar="K", help="passages read: a row each (1 5 20 100)")
    parser.add_argument("--regular-expressions", action="store_true", help="answers are regular expressions (CuratedTREC); exact match only")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="for first-K.jsonl and measures.json")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU where there is one)")
    return parser


if __name__ == "__main__":
    cli.run(main)
