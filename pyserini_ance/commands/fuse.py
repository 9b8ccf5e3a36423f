"""`pyserini-ance fuse`: a hybrid of rankings of the same queries, by Pyserini's fusion.

The weight of the hybrid may be chosen on another split.
"""

import argparse
from pathlib import Path

from pyserini_ance.commands import console
from pyserini_ance.pyserini_bridge.searchers import METHODS

DETAILS = "methods:\n" + "\n".join(f"  {name:<14}{method.description}" for name, method in METHODS.items())
LEGEND = "the last row is the fusion, as written to --output; the rows above are what it fuses"
EXAMPLE = "pyserini-ance fuse runs/demo-ance --method hybrid --choose-on dev --output fused.trec"


def main(arguments: list[str] | None = None) -> None:
    parser = _parser()
    args = parser.parse_args(arguments)
    has_weight = bool(METHODS[args.method].weights)
    if has_weight != ((args.weight is None) != (args.choose_on is None)):
        cure = "pass --weight W, or --choose-on SPLIT" if has_weight else "remove --weight and --choose-on"
        parser.error(f"--method {args.method} has {'a' if has_weight else 'no'} weight: {cure}")
    if args.weight is not None:
        METHODS[args.method].check_weight(args.weight)
    from pyserini_ance.data.trec import read_qrels
    from pyserini_ance.evaluation.legends import table_with_legend
    from pyserini_ance.reports.fusion import Hybrid
    from pyserini_ance.storage.files import check_not_input

    inputs = [Path(name) for name in args.rankings] + [args.qrels] * bool(args.qrels)
    check_not_input(args.output, inputs)
    hybrid = Hybrid.of(args.rankings, args.method)
    if not hybrid.split():
        console.refuse_options(parser, args, "a file is a ranking of one split", "--split")
    split = args.split or hybrid.split()
    if args.choose_on == split:
        parser.error(f"the weight would be chosen on the measured split {split!r}; choose it on another")
    measures, weight = args.measures or hybrid.measures(split), args.weight
    if args.choose_on:
        values = hybrid.measure_weights(args.choose_on, measures[0])
        weight = next(iter(values))
        listed = ", ".join(f"{tried:g}: {value:.4f}" for tried, value in sorted(values.items()))
        print(f"{measures[0]} on {args.choose_on} by weight: {listed}\n")
    judge = hybrid.judge(split, measures, read_qrels(args.qrels) if args.qrels else None)
    rows = hybrid.rows(split, judge, args.output, weight)
    print(table_with_legend(rows, list(rows[0]), LEGEND))


def _parser() -> argparse.ArgumentParser:
    parser = console.command_parser(
        "fuse",
        "Fuse rankings of the same queries, for example dense and BM25, and measure the result.",
        EXAMPLE,
        DETAILS,
    )
    parser.add_argument(
        "rankings",
        nargs="+",
        metavar="RANKING",
        help=f"{console.RANKING}, or a TREC file; a run directory alone is fused with its BM25; rrf, "
        "average, normalize take several",
    )
    fusion = parser.add_argument_group("fusion")
    fusion.add_argument("--method", choices=METHODS, default="rrf", help="see below (default: %(default)s)")
    fusion.add_argument(
        "--weight", type=float, metavar="W", help="weight of the first ranking (interpolation, hybrid)"
    )
    fusion.add_argument(
        "--choose-on",
        metavar="SPLIT",
        help="choose the weight by the first measure on this split of final_evaluation.split",
    )
    measuring = parser.add_argument_group("measuring")
    measuring.add_argument("--split", help="the split of the queries (default: the first test split)")
    measuring.add_argument(
        "--qrels", type=Path, metavar="FILE", help="judgments instead of the run directory's"
    )
    measuring.add_argument(
        "--measures", nargs="+", action="extend", help="default: those of the recipe's final_evaluation"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output", type=console.output_file, required=True, metavar="FILE", help="the TREC run to write"
    )
    return parser
