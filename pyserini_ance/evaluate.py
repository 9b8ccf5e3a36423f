"""`python -m pyserini_ance.evaluate`: a run file against qrels, by any measure of ir-measures."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from pyserini_ance import cli
from pyserini_ance.data.trec import read_qrels, read_run
from pyserini_ance.measures.evaluate import evaluate, per_query
from pyserini_ance.measures.table import table
from pyserini_ance.recipe.measure import parse
from pyserini_ance.storage.files import write_json


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    measures = parse(options.measures)
    qrels, run = read_qrels(options.qrels), read_run(options.run)
    totals = evaluate(qrels, run, measures)
    by_query = per_query(qrels, run, measures) if options.per_query else {}
    if options.output:
        report = {"run": str(options.run), "qrels": str(options.qrels), "queries": len(qrels), "measures": totals}
        write_json(options.output, report | ({"per_query": by_query} if options.per_query else {}))
    rows = [{"query": query} | values for query, values in by_query.items()]
    print(table([*rows, {"query": "all"} | totals], ["query", *totals]))
    print(_coverage(len(qrels), len(qrels.keys() & run.keys()), len(run.keys() - qrels.keys())))


def _coverage(judged: int, with_hits: int, unjudged: int) -> str:
    text = f"{judged} judged queries, {judged - with_hits} of them without any hit (they count as 0)"
    return f"{text}; {unjudged} queries of the run are not judged and left out" if unjudged else text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.evaluate", description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="TREC run, plain or .gz")
    parser.add_argument("--qrels", type=Path, required=True, help="TREC qrels, plain or .gz")
    parser.add_argument("--measures", nargs="+", default=["nDCG@10", "RR@10", "R@100"], help="default: %(default)s")
    parser.add_argument("--per-query", action="store_true", help="show each judged query too")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="also write the figures as JSON")
    return parser


if __name__ == "__main__":
    cli.run(main)
