"""`python -m benchmarks.papers answer`: answer questions from the passages of a ranking."""

import argparse
import logging
from pathlib import Path

from benchmarks import options
from pyserini_ance.distributed.failures import interrupt_on_termination

CUTOFFS = (1, 5, 20, 100)
EXAMPLE = """python -m benchmarks.papers answer runs/nq-ance --reader extractive \\
    --model distilbert-base-cased-distilled-squad --first 5 20 --output answers"""


def main(arguments: list[str] | None = None) -> None:
    args = _parse(arguments)
    logging.basicConfig(format="%(message)s")
    interrupt_on_termination()
    import torch

    from benchmarks.papers.question_answering import Answering, make_reader
    from pyserini_ance.encoders.hub import find_model
    from pyserini_ance.evaluation.legends import table_with_legend
    from pyserini_ance.pipeline.ranking_inputs import open_ranking

    reader = make_reader(args.reader, args.model, args.settings)
    find_model(args.model, "--model")
    ranked = open_ranking(args.source, args.run, args.split, args.questions)
    answering = Answering(ranked, tuple(sorted(set(args.first or CUTOFFS))), args.output)
    answering.begin(reader)
    answering.read(reader.open(args.device or ("cuda" if torch.cuda.is_available() else "cpu")))
    rows = answering.rows(args.regular_expressions)
    unranked = len(ranked.queries) - len(ranked.ranked_queries)
    counts = (
        f"{len(ranked.queries)} questions, {unranked} of them without any passage (they count as wrong); "
        f"predictions in {args.output}"
    )
    print(table_with_legend(rows, list(rows[0]), counts))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    from benchmarks.papers.readers import READERS

    parser = options.command_parser(
        "answer",
        "Answer questions with a reader from retrieved passages, and measure the answers.",
        EXAMPLE,
        "An interrupted command continues if it is started again with the same --output.",
    )
    options.add_ranking_source(parser)
    parser.add_argument(
        "settings", nargs="*", metavar="key=value", help="settings of the reader, such as answer_tokens=10"
    )
    questions = parser.add_argument_group("questions and passages")
    questions.add_argument("--run", type=Path, metavar="FILE", help="read the passages of this TREC run")
    questions.add_argument("--split", help="the split of the questions (default: the first test split)")
    options.add_questions(questions)
    questions.add_argument(
        "--regular-expressions",
        action="store_true",
        help="answers are regular expressions (CuratedTREC); measures exact match only",
    )
    reading = parser.add_argument_group("reading")
    reading.add_argument(
        "--reader", choices=list(READERS), default="extractive", help="kind of reader (default: %(default)s)"
    )
    reading.add_argument("--model", required=True, help="the reader's model: a hub name or a folder")
    reading.add_argument(
        "--first",
        type=options.positive_int,
        nargs="+",
        action="extend",
        metavar="K",
        help="numbers of passages to read, a row each (default: 1 5 20 100)",
    )
    reading.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one)")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output",
        type=options.output_folder,
        required=True,
        metavar="FOLDER",
        help="the folder for first-K.jsonl and measures.json",
    )
    args = parser.parse_intermixed_args(arguments)
    if args.questions and (args.split or not args.run):
        parser.error("--questions requires --run with a ranking of these questions, and excludes --split")
    return args
