"""`pyserini-ance mine`: mine hard negatives with any encoder over any collection, for any trainer."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.contrib.logging import logging_redirect_tqdm

from pyserini_ance.commands import console
from pyserini_ance.distributed.failures import interrupt_on_termination

if TYPE_CHECKING:
    from pyserini_ance.negatives.source import Source

FORMATS = ("sentence-transformers", "tevatron")


def main(arguments: list[str] | None = None) -> None:
    parser = _parser()
    args = parser.parse_args(arguments)
    console.log_to_stderr()
    interrupt_on_termination()
    filters = [filter_settings(text) for text in args.filters]
    from pyserini_ance.distributed.world import World
    from pyserini_ance.pipeline.mining import NUM_NEGATIVES, collection_files, read_source
    from pyserini_ance.storage.files import check_not_input

    source = read_source(source_settings(args), filters, args.num_negatives or NUM_NEGATIVES)
    if "bm25" not in source.needs:
        console.refuse_options(parser, args, f"--source {args.source} searches without BM25", "--k1", "--b")
    inputs = [args.collection, *collection_files(args.collection), *[args.file] * bool(args.file)]
    check_not_input(args.output, inputs)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with logging_redirect_tqdm(), World.join(args.device).session() as world:
        report = _mine(args, source, world)
    if report:
        print(report)


def _mine(args: argparse.Namespace, source: "Source", world: Any) -> str:
    """Mine on all processes of `world` and write on the main one; what the main one prints."""
    from pyserini_ance import api
    from pyserini_ance.distributed.process_group import device_of
    from pyserini_ance.pipeline.mining import mine_negatives
    from pyserini_ance.recipe.load import read_options
    from pyserini_ance.recipe.models import Bm25, Encoding
    from pyserini_ance.runs.any_encoder import load_any_encoder

    bm25 = read_options(Bm25, k1=args.k1, b=args.b)
    encoding = read_options(Encoding, precision=args.precision, tokens_per_batch=args.tokens_per_batch)
    encoder = load_any_encoder(args.encoder, device_of(world.device), given=console.foreign_settings(args))
    if world.size > 1:  # the others then find it in the cache
        world.on_main(lambda: api.load_collection(args.collection, cache=args.cache) and None)
    mined = mine_negatives(
        encoder,
        api.load_collection(args.collection, cache=args.cache),
        source,
        args.split,
        seed=args.seed,
        bm25=bm25,
        encoding=encoding,
        cache=api.cache_folder(args.cache),
        world=world,
    )
    world.on_main(lambda: mined.to_jsonl(args.output, args.format))
    return f"{mined.describe()}\n\n{args.output}: {len(mined):,} queries" if world.is_main else ""


def source_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The settings of `--source` as in a recipe, with the options that change them."""
    from pyserini_ance.recipe.load import read_yaml

    read = read_yaml(args.source, "--source") if args.source.startswith("{") else args.source
    settings = read if isinstance(read, dict) else {"kind": read}
    options = {
        "top_k": args.top_k,
        "file": args.file and str(args.file),
        "sampling_strategy": args.sampling_strategy,
        "on_shortage": args.on_shortage,
        "oversample": args.oversample,
    }
    return settings | {key: value for key, value in options.items() if value is not None}


def top_k(text: str) -> int | str:
    """A positive number, or `auto`, which the sources ann and lookahead have."""
    return text if text == "auto" else console.positive_int(text)


def filter_settings(text: str) -> Any:
    """A filter as in a recipe: `duplicates`, `relative_margin=0.05`, or a YAML mapping with `kind`.

    Raises ValueError for an unknown kind, and for a value where the kind has no setting or several.
    """
    from pyserini_ance.recipe.components import Component, component_class
    from pyserini_ance.recipe.load import read_yaml

    if text.startswith("{"):
        return read_yaml(text, "--filters")
    kind, equals, value = text.partition("=")
    if not equals:
        return kind
    own = component_class("filters", kind).model_fields.keys() - Component.model_fields.keys()
    if len(own) != 1:
        has, cure = "no settings", kind
        if own:
            has, cure = f"the settings {', '.join(sorted(own))}", f"{{kind: {kind}, NAME: VALUE}}"
        raise ValueError(f"--filters {text}: {kind} has {has}; write {cure}")
    return {"kind": kind, own.pop(): read_yaml(value, f"--filters {text}")}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pyserini-ance mine", description=__doc__)
    add = parser.add_argument
    add("--encoder", required=True, help="RUN/model, a run directory, or a Hugging Face folder or hub name")
    add("--collection", type=Path, required=True, metavar="FILE.yaml", help="the `data:` section of a recipe")
    add("--split", default="train", help="mine for the queries of this split (default: %(default)s)")
    sources = "ann, lookahead, bm25, ranking or random, or a YAML mapping as in a recipe"
    add("--source", default="ann", help=f"{sources} (default: %(default)s)")
    add("--file", type=Path, metavar="RANKING", help="of --source ranking: a TREC run or a training file")
    add("--top-k", type=top_k, help="candidates per query, or `auto` (default: that of the source)")
    number = "negatives per query in the output (default: that of --source, or 8)"
    add("--num-negatives", type=console.positive_int, help=number)
    filters = "duplicates, relative_margin=0.05, range_min=10, ..., or YAML mappings; applied in this order"
    add("--filters", nargs="+", action="extend", default=[], metavar="KIND[=VALUE]", help=filters)
    more = "candidates retrieved beyond --top-k to replace those that filters remove (default: 100)"
    add("--oversample", type=console.positive_int, help=more)
    choice = "how the negatives are chosen among the candidates (default: at random)"
    strategies = ("random", "top", "ambiguous", "stratified")
    add("--sampling-strategy", choices=strategies, help=choice)
    shortage = "for a query with fewer candidates than negatives: stop (the default), or add random ones"
    add("--on-shortage", choices=("error", "fill_random"), help=shortage)
    add(
        "--output",
        type=console.output_file,
        required=True,
        metavar="FILE.jsonl",
        help="the file to write, or to replace",
    )
    add("--format", choices=FORMATS, default=FORMATS[0], help="default: %(default)s")
    add("--seed", type=int, default=42, help="of the random choices (default: %(default)s)")
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1, ... (default: %(default)s)")
    precision = "auto: bf16 where the device is fast at it (default: %(default)s)"
    add("--precision", choices=("auto", "fp32", "bf16", "fp16"), default="auto", help=precision)
    budget = "padded tokens of one batch (default: 1,024 on a CPU, 8,192 on a GPU)"
    add("--tokens-per-batch", type=console.positive_int, help=budget)
    add("--cache", type=Path, help="folder of read collections and their tokens (default: the recipes')")
    add("--k1", type=float, default=0.9, help="of --source bm25 (default: %(default)s)")
    add("--b", type=float, default=0.4, help="of --source bm25 (default: %(default)s)")
    console.add_foreign_encoder(parser)
    return parser
