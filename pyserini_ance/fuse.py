"""`python -m pyserini_ance.fuse RUN --output FILE`: a hybrid of rankings, by Pyserini's fusion; of a run directory alone, with its BM25.

A ranking is FOLDER (the final one of a run directory), FOLDER:ROW (that of a row of its closing table), or a TREC file.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from pyserini_ance import cli
from pyserini_ance.data.trec import read_qrels
from pyserini_ance.experiment.fuse import Hybrid
from pyserini_ance.measures.table import table
from pyserini_ance.pyserini_bridge.fusion import METHODS


def main(arguments: Sequence[str] | None = None) -> None:
    parser = _parser()
    args = parser.parse_args(arguments)
    weighted = bool(METHODS[args.method].weights)
    if weighted != ((args.weight is None) != (args.choose_on is None)):
        told = "give --weight W, or --choose-on SPLIT" if weighted else "leave out --weight and --choose-on"
        parser.error(f"--method {args.method} has {'a' if weighted else 'no'} weight: {told}")
    hybrid = Hybrid.of(args.rankings, args.method)
    split = args.split or hybrid.split()
    if args.choose_on == split:
        parser.error(f"the weight would be chosen on the split that is measured, {split!r}; choose it on another")
    measures, weight = args.measures or hybrid.measures(split), args.weight
    if args.choose_on:
        found = hybrid.chosen(args.choose_on, measures[0])
        weight = next(iter(found))
        print(f"{measures[0]} on {args.choose_on} by weight: {', '.join(f'{one:g}: {value:.4f}' for one, value in sorted(found.items()))}\n")
    judge = hybrid.judge(split, measures, read_qrels(args.qrels) if args.qrels else None)
    rows = hybrid.rows(split, judge, args.output, weight)
    print(table(rows, list(rows[0])))


def _parser() -> argparse.ArgumentParser:
    methods = "\n".join(f"  {name:<14}{method.about}" for name, method in METHODS.items())
    parser = argparse.ArgumentParser(
        prog="python -m pyserini_ance.fuse", description=__doc__, epilog=f"methods:\n{methods}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rankings", nargs="+", metavar="RANKING", help="two rankings, or one run directory; rrf, average, normalize take more")
    parser.add_argument("--method", choices=METHODS, default="rrf", help="default: %(default)s")
    parser.add_argument("--weight", type=float, metavar="W", help="of the first ranking, for interpolation and hybrid")
    parser.add_argument("--choose-on", metavar="SPLIT", help="choose the weight by the first measure on this split, which `test.split` has too")
    parser.add_argument("--split", help="whose queries are ranked (default: the first test split)")
    parser.add_argument("--qrels", type=Path, metavar="FILE", help="instead of the run directory's")
    parser.add_argument("--measures", nargs="+", help="default: those of the recipe's test")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the TREC run to write")
    return parser


if __name__ == "__main__":
    cli.run(main)
