"""`python -m pyserini_ance.rerank RUN --model NAME --output FOLDER`: two stages; a cross-encoder reorders the first hits of a ranking.

RUN is a run directory (its final ranking), or FOLDER:ROW for a row of its closing table; --run FILE is any other ranking of its
queries, and then a recipe will do for RUN. Started again with the same --output it goes on where it stopped.
"""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from pyserini_ance import cli
from pyserini_ance.distributed.interruption import interrupt_on_termination


def main(arguments: Sequence[str] | None = None) -> None:
    args = _parser().parse_args(arguments)
    logging.basicConfig(format="%(message)s")
    interrupt_on_termination()
    from pyserini_ance.data.trec import read_qrels
    from pyserini_ance.experiment.ranked import open_ranked
    from pyserini_ance.experiment.rerank import Reranking, timing_of
    from pyserini_ance.measures.table import table
    from pyserini_ance.recipe.measure import parse
    from pyserini_ance.rerankers.cross_encoder import CrossEncoder

    ranked = open_ranked(args.source, args.run, args.split)
    measures = parse(args.measures) if args.measures else ranked.recipe.test.measures_of(ranked.split)
    judged_by = read_qrels(args.qrels) if args.qrels else None
    reranking = Reranking(ranked, tuple(sorted(set(args.first))), args.output, measures, judged_by, args.template)
    time_first_stage = timing_of(args.source, ranked, args.time_first_stage) if args.time_first_stage else tuple
    queries = len(ranked.asked)
    model = CrossEncoder(args.model, args.device, args.batch_pairs, args.length_tokens, args.precision)
    reranking.begin(args.model, length_tokens=args.length_tokens, precision=args.precision, batch_pairs=args.batch_pairs, device=model.device)
    reranking.score(model.logits)
    rows = reranking.rows(time_first_stage())
    print(table(rows, list(rows[-1])))
    others = len(ranked.run) - queries
    left_out = f"; {others} others of the ranking are not in split {ranked.split!r} and left out" if others else ""
    print(f"{queries} queries{left_out}; {ranked.name} reranked by {args.model} on {model.device}, runs in {args.output}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.rerank", description=__doc__)
    parser.add_argument("source", metavar="RUN|RECIPE", help="FOLDER of a run, FOLDER:ROW for a row of its closing table, or a recipe and --run")
    parser.add_argument("--run", type=Path, metavar="FILE", help="rerank this TREC run")
    parser.add_argument("--split", help="whose queries are ranked (default: the first test split)")
    parser.add_argument("--model", required=True, help="a cross-encoder of sentence-transformers: a hub name or a folder")
    parser.add_argument("--first", type=cli.from_one_on, nargs="+", default=[100], metavar="K", help="of several, a row and a run each (100)")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="for first-K.trec, measures.json and queries.jsonl")
    parser.add_argument("--qrels", type=Path, metavar="FILE", help="judgments to measure by (default: those of the recipe's data)")
    parser.add_argument("--measures", nargs="+", help="default: those of the recipe's test")
    parser.add_argument("--template", help="what is read of a document, such as '{title} {text}' (default: all fields, joined by blanks)")
    parser.add_argument("--length-tokens", type=cli.from_one_on, metavar="N", help="cut a pair there (default: the model's limit)")
    parser.add_argument("--batch-pairs", type=cli.from_one_on, default=32, metavar="N", help="default: %(default)s")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="default: %(default)s")
    parser.add_argument("--time-first-stage", type=cli.from_one_on, metavar="N", help="also time N of its searches, one by one, by Pyserini")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU where there is one)")
    return parser


if __name__ == "__main__":
    cli.run(main)
