"""`pyserini-ance rerank`: rerank the first hits of a ranking with a cross-encoder."""

import argparse
import logging
from pathlib import Path

from pyserini_ance.commands import console
from pyserini_ance.distributed.failures import interrupt_on_termination

EXAMPLE = """pyserini-ance rerank runs/demo-ance --model cross-encoder/ms-marco-MiniLM-L6-v2 --first 20 100 \\
    --output reranked"""

FIRST = 100


def main(arguments: list[str] | None = None) -> None:
    args = _parser().parse_args(arguments)
    logging.basicConfig(format="%(message)s")
    interrupt_on_termination()
    from pyserini_ance.data.trec import read_qrels
    from pyserini_ance.encoders.cross_encoder_model import CrossEncoderModel
    from pyserini_ance.encoders.hardware import resolve_precision
    from pyserini_ance.evaluation.legends import table_with_legend
    from pyserini_ance.pipeline.ranking_inputs import open_ranking
    from pyserini_ance.recipe.evaluation_settings import parse_measures
    from pyserini_ance.reports.reranking import Reranking, search_timer

    ranked = open_ranking(args.source, args.run, args.split)
    measures = ranked.recipe.final_evaluation.measures_of(ranked.split)
    if args.measures:
        measures = parse_measures(args.measures)
    qrels = read_qrels(args.qrels) if args.qrels else None
    cutoffs = tuple(sorted(set(args.first or [FIRST])))
    reranking = Reranking(ranked, cutoffs, args.output, measures, qrels, args.template)
    timed = args.time_first_stage
    time_first_stage = search_timer(args.source, ranked, timed) if timed else list[float]
    queries = len(ranked.ranked_queries)
    precision = resolve_precision(args.precision, args.device or "auto")
    model = CrossEncoderModel(args.model, args.device, args.batch_pairs, args.length_tokens, precision)
    reranking.begin(
        args.model,
        length_tokens=args.length_tokens,
        precision=precision,
        batch_pairs=args.batch_pairs,
        device=model.device,
    )
    reranking.score(model.logits)
    rows = reranking.rows(time_first_stage())
    others = len(ranked.run) - queries
    skipped = f"; {others} other queries of the ranking are not in split {ranked.split!r}" if others else ""
    counts = (
        f"{queries} queries{skipped}; {ranked.name} reranked by {args.model} on {model.device}, "
        f"runs in {args.output}"
    )
    print(table_with_legend(rows, list(rows[-1]), counts))


def _parser() -> argparse.ArgumentParser:
    parser = console.command_parser(
        "rerank",
        "Rerank the first hits of a ranking with a cross-encoder, and measure the result and its latency.",
        EXAMPLE,
        "An interrupted command continues if it is started again with the same --output.",
    )
    console.add_ranking_source(parser)
    ranking = parser.add_argument_group("ranking")
    ranking.add_argument("--run", type=Path, metavar="FILE", help="rerank this TREC run")
    ranking.add_argument("--split", help="the split of the queries (default: the first test split)")
    ranking.add_argument(
        "--first",
        type=console.positive_int,
        nargs="+",
        action="extend",
        metavar="K",
        help="rerank the first K hits; several K give a row and a run each (default: 100)",
    )
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model", required=True, help="a cross-encoder of sentence-transformers: a hub name or a folder"
    )
    model.add_argument(
        "--template",
        help="the text of a document, such as '{title} {text}' (default: all fields, joined by blanks)",
    )
    model.add_argument(
        "--length-tokens",
        type=console.positive_int,
        metavar="N",
        help="truncate pairs to N tokens (default: the model's limit)",
    )
    model.add_argument(
        "--batch-pairs",
        type=console.positive_int,
        default=32,
        metavar="N",
        help="pairs per batch (default: %(default)s)",
    )
    precision = "auto: bf16 if the device is fast at it (default: %(default)s)"
    choices = ("fp32", "bf16", "fp16", "auto")
    model.add_argument("--precision", choices=choices, default="fp32", help=precision)
    model.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: a GPU if there is one)")
    measuring = parser.add_argument_group("measuring")
    measuring.add_argument(
        "--measures", nargs="+", action="extend", help="default: those of the recipe's final_evaluation"
    )
    measuring.add_argument(
        "--qrels",
        type=Path,
        metavar="FILE",
        help="judgments to measure by (default: those of the recipe's data)",
    )
    measuring.add_argument(
        "--time-first-stage",
        type=console.positive_int,
        metavar="N",
        help="also time N searches of the first stage, one by one, with Pyserini",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output",
        type=console.output_folder,
        required=True,
        metavar="FOLDER",
        help="the folder for first-K.trec, measures.json and queries.jsonl",
    )
    return parser
