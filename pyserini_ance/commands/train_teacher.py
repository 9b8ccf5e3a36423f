"""`pyserini-ance train-teacher`: train a cross-encoder on the mined negatives of a finished run."""

import argparse
import os
from pathlib import Path

from pyserini_ance.commands import console
from pyserini_ance.distributed.failures import interrupt_on_termination
from pyserini_ance.recipe.teacher_training import TeacherTraining

EXAMPLE = "pyserini-ance train-teacher runs/demo-ance --output runs/demo-teacher"
DETAILS = """The folder is for `rerank --model FOLDER` and, in a recipe, for
`teacher: {kind: cross_encoder, model: FOLDER}`."""


def main(arguments: list[str] | None = None) -> None:
    args = _parser().parse_args(arguments)
    console.log_to_stderr()
    interrupt_on_termination()
    if "LOCAL_RANK" in os.environ:
        raise ValueError("train-teacher runs as one process; start it without torchrun")
    from pyserini_ance.distributed.process_group import device_of
    from pyserini_ance.encoders.cross_encoder_model import CrossEncoderModel, require_sentence_transformers
    from pyserini_ance.evaluation.tables import read_results, table
    from pyserini_ance.pipeline.mined_lists import MinedLists
    from pyserini_ance.pipeline.ranking_inputs import collection_of
    from pyserini_ance.pipeline.teacher_training import (
        TeacherSettings,
        default_length,
        start_weights,
        train_teacher,
    )
    from pyserini_ance.recipe.load import read_options
    from pyserini_ance.reports.teacher_evaluation import DevRanking, dev_split
    from pyserini_ance.runs.rundir import RunDir

    require_sentence_transformers()
    if args.output.exists():
        raise FileExistsError(f"{args.output} exists; remove it, or pass another --output")
    run = RunDir(args.run)
    recipe = run.read_recipe()
    settings = read_options(
        TeacherSettings,
        loss=args.loss,
        steps=args.steps,
        batch_queries=args.batch_queries,
        num_negatives=args.num_negatives,
        learning_rate=args.learning_rate,
        length_tokens=args.length_tokens or default_length(recipe),
        seed=args.seed,
        precision=args.precision,
    )
    collection, device = collection_of(run), device_of(args.device)
    retriever = read_results(run.folder)["recipe"]
    lists, split = MinedLists.of(run, recipe, collection), args.split or dev_split(recipe)
    source = args.model or start_weights(run)
    dev = DevRanking.of(run, recipe, collection, split, args.first, args.queries, args.seed, device)
    about = {"retriever": retriever, "start": args.model or "the untrained encoder of the run"}
    train_teacher(lists, source, settings, device, args.output, about)
    model = CrossEncoderModel(str(args.output), device)
    rows, difference = dev.compare(dev.rerank(model.logits, args.first), f"first {args.first} reranked")
    print(table(rows, list(rows[0])))
    print(
        f"{len(dev.qrels)} queries of {split}; nDCG@10 {difference} ({difference.wins} queries better, "
        f"{difference.losses} worse); the cross-encoder is in {args.output}"
    )
    if difference.mean <= 0:
        print("It ranks no better than the retriever: a teacher needs more steps, or a larger --model.")


def _parser() -> argparse.ArgumentParser:
    defaults = TeacherTraining()
    parser = console.command_parser(
        "train-teacher",
        "Train a cross-encoder on a run's positives and its last mined negatives, and compare it with the "
        "run's retriever.",
        EXAMPLE,
        DETAILS,
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a finished run with mined negatives")
    training = parser.add_argument_group("training")
    training.add_argument(
        "--model",
        help="start from this encoder, or train this cross-encoder further: a hub name or a folder "
        "(default: the encoder that the run started from)",
    )
    training.add_argument(
        "--loss",
        choices=("bce", "lambda"),
        default=defaults.loss,
        help="binary cross-entropy of pairs, or LambdaLoss of each query's list (default: %(default)s)",
    )
    training.add_argument(
        "--steps", type=console.positive_int, metavar="N", help="default: one pass over the training queries"
    )
    training.add_argument(
        "--batch-queries",
        type=console.positive_int,
        default=defaults.batch_queries,
        metavar="N",
        help="queries per step (default: %(default)s)",
    )
    training.add_argument(
        "--num-negatives",
        type=console.positive_int,
        default=defaults.num_negatives,
        metavar="N",
        help="negatives per query, drawn anew each time (default: %(default)s)",
    )
    training.add_argument(
        "--learning-rate",
        type=float,
        default=defaults.learning_rate,
        metavar="RATE",
        help="default: %(default)s",
    )
    training.add_argument(
        "--length-tokens",
        type=console.positive_int,
        metavar="N",
        help="truncate pairs to N tokens (default: the run's query length plus its document length)",
    )
    training.add_argument("--seed", type=int, default=42, metavar="N", help="default: %(default)s")
    training.add_argument(
        "--precision", choices=("auto", "fp32", "bf16"), default="auto", help="default: %(default)s"
    )
    training.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    measuring = parser.add_argument_group("measuring")
    measuring.add_argument("--split", help="the dev split (default: that of the run's last dev evaluation)")
    measuring.add_argument(
        "--first",
        type=console.positive_int,
        default=20,
        metavar="K",
        help="rerank the retriever's first K hits (default: %(default)s)",
    )
    measuring.add_argument(
        "--queries",
        type=console.positive_int,
        metavar="N",
        help="measure on N queries of the split (default: all)",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output",
        type=console.output_folder,
        required=True,
        metavar="FOLDER",
        help="the folder for the cross-encoder",
    )
    return parser
