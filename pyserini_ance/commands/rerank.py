"""`pyserini-ance rerank`: rerank the first hits of a ranking with a cross-encoder."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from pyserini_ance.commands import console, parsing

FIRST = 100
EXAMPLE = """pyserini-ance rerank runs/demo-ance --model cross-encoder/ms-marco-MiniLM-L6-v2 --first 20 100 \\
    --output reranked"""


@parsing.command(EXAMPLE, "An interrupted command continues if it is started again with the same --output.")
def main(
    source: Annotated[str, Argument(metavar="RUN|RECIPE", help=f"{parsing.RANKING}, or a recipe with --run")],
    model: Annotated[str, parsing.option("NAME", "a cross-encoder: a hub name or a folder")],
    output: Annotated[Path, parsing.output_folder("FOLDER", "for first-K.trec, measures.json, ...")],
    run: Annotated[Path | None, parsing.option("FILE", "rerank this TREC run")] = None,
    split: parsing.Split = None,
    first: Annotated[
        list[int] | None, parsing.count("K ...", f"first hits, a row for each K (default: {FIRST})")
    ] = None,
    length_tokens: Annotated[int | None, parsing.count("N", "a pair's tokens (default: the model's)")] = None,
    precision: parsing.PrecisionOption = "fp32",
    device: parsing.Device = "auto",
    measures: parsing.Measures = None,
    qrels: parsing.QrelsFile = None,
    time_first_stage: Annotated[int | None, parsing.count("N", "also time N searches with Pyserini")] = None,
) -> None:
    """Rerank the first hits of a ranking with a cross-encoder, and measure the result and its latency."""
    console.begin()
    from pyserini_ance.data.trec import read_qrels
    from pyserini_ance.distributed.world import device_of
    from pyserini_ance.encoders.cross_encoder_model import BATCH_PAIRS, CrossEncoderModel
    from pyserini_ance.encoders.hardware import resolve_precision
    from pyserini_ance.evaluation.tables import table_with_legend
    from pyserini_ance.recipe.evaluation_settings import parse_measures
    from pyserini_ance.reports.ranking_inputs import open_ranking
    from pyserini_ance.reports.reranking import rerank, search_timer

    device = device_of(device)
    ranked = open_ranking(source, run, split)
    tests = ranked.recipe.final_evaluation
    chosen = parse_measures(measures) if measures else tests.measures_of(ranked.split)
    if not chosen:
        parsing.refuse(f"the recipe has no measures of split {ranked.split!r}; pass --measures")
    judgments = read_qrels(qrels) if qrels else None
    timer = search_timer(source, ranked, time_first_stage) if time_first_stage else list[float]
    used = resolve_precision(precision, device)
    scorer = CrossEncoderModel(model, device, length_tokens, used)
    settings = {"model": model, "length_tokens": length_tokens, "precision": used}
    settings |= {"batch_pairs": BATCH_PAIRS, "device": scorer.device}
    cutoffs = sorted(set(first or [FIRST]))
    rows = rerank(ranked, scorer.logits, cutoffs, output, chosen, settings, judgments, timer)
    queries = len(ranked.ranked_queries)
    others = len(ranked.run) - queries
    skipped = f"; {others} other queries of the ranking are not in split {ranked.split!r}" if others else ""
    counts = f"{queries} queries of {ranked.split}{skipped}; {ranked.name} reranked by {model} on "
    counts += f"{scorer.device}, runs in {output}"
    print(table_with_legend(rows, list(rows[-1]), counts))
