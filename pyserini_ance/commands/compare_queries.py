"""`pyserini-ance compare-queries`: the queries that one ranking wins and loses most against another."""

import argparse

from pyserini_ance.commands import console
from pyserini_ance.data.trec import Qrels, Run, read_qrels, read_run
from pyserini_ance.evaluation.query_comparison import QueryComparison
from pyserini_ance.pipeline.ranking_inputs import collection_of, parse_ranking_name, ranking_file
from pyserini_ance.recipe.evaluation_settings import parse_measures


def main(arguments: list[str] | None = None) -> None:
    args = _parse(arguments)
    (measure,) = parse_measures([args.measure])
    folder, _ = parse_ranking_name(args.run)
    collection = collection_of(folder)
    split = args.split or folder.read_recipe().final_evaluation.split[0]
    qrels, run = _ranking(args.run, split)
    other_qrels, other = _ranking(args.other, split)
    if qrels != other_qrels:
        raise ValueError(
            f"{args.run} and {args.other} judge split {split!r} differently; pass two runs over the same "
            "data and split"
        )
    comparison = QueryComparison(
        qrels,
        collection.split(split).queries,
        collection.documents,
        {args.run: run, args.other: other},
        measure,
        args.characters,
    )
    print(comparison.as_markdown(args.most))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = console.command_parser(
        "compare-queries",
        "List the queries that a ranking wins and loses most against another, with their texts, as Markdown.",
        "pyserini-ance compare-queries runs/demo-ance runs/demo-ance:bm25 --measure nDCG@10 --most 5",
        "Both rankings must be over the same data and test split.",
    )
    parser.add_argument(
        "run",
        metavar="RUN",
        help="RUN for the final ranking of a run directory, RUN:ROW for that of a row of its results table",
    )
    parser.add_argument("other", metavar="OTHER", help="the ranking to compare with, named in the same way")
    parser.add_argument("--measure", default="RR@10", help="the measure to compare (default: %(default)s)")
    parser.add_argument("--split", help="the test split (default: the first)")
    parser.add_argument(
        "--most",
        type=console.positive_int,
        default=10,
        metavar="N",
        help="show the N queries won and the N lost by most (default: %(default)s)",
    )
    parser.add_argument(
        "--characters",
        type=console.positive_int,
        default=300,
        metavar="N",
        help="show N characters of each text (default: %(default)s)",
    )
    args = parser.parse_args(arguments)
    if args.run == args.other:
        parser.error("pass two different rankings")
    return args


def _ranking(name: str, split: str) -> tuple[Qrels, Run]:
    folder, row = parse_ranking_name(name)
    path = ranking_file(folder, row, split)
    if not folder.qrels(split).exists():
        raise ValueError(
            f"{folder.folder} has no judgments of split {split!r}, which is judged by answers; "
            "pass another split with --split"
        )
    return read_qrels(folder.qrels(split)), read_run(path)
