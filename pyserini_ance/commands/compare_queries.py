"""`pyserini-ance compare-queries`: the queries that one ranking wins and loses most against another.

The report is Markdown, with the first document of each ranking.
"""

import argparse

from pyserini_ance.commands import console


def main(arguments: list[str] | None = None) -> None:
    args = _parse(arguments)
    from pyserini_ance.reports.query_comparison import compare_queries

    comparison = compare_queries(args.run, args.other, args.measure, args.split, args.characters)
    print(comparison.as_markdown(args.most))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = console.command_parser(
        "compare-queries",
        "List the queries that a ranking wins and loses most against another, with their texts, as Markdown.",
        "pyserini-ance compare-queries runs/demo-ance runs/demo-ance:bm25 --measure nDCG@10 --most 5",
        "Both rankings must be over the same data and test split.",
    )
    parser.add_argument("run", metavar="RUN", help=console.RANKING)
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
