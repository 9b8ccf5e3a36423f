"""`pyserini-ance mine`: mine hard negatives with any encoder over any collection, for any trainer."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from tqdm.contrib.logging import logging_redirect_tqdm

from pyserini_ance.commands import console, parsing

EXAMPLE = """pyserini-ance mine --encoder runs/demo-ance --collection data.yaml --top-k 50 \\
      --filters duplicates relative_margin=0.05 --output negatives.jsonl"""
DETAILS = """A filter is a name such as duplicates, a name with a value such as relative_margin=0.05 or
range_min=10, or a YAML mapping. Filters are applied in the order given."""


@parsing.command(EXAMPLE, DETAILS)
def main(
    encoder: Annotated[str, parsing.option("NAME", "RUN/model, RUN, or a Hugging Face folder or name")],
    collection: Annotated[Path, parsing.option("FILE.yaml", "the `data:` section of a recipe")],
    output: Annotated[Path | None, parsing.output_file("FILE.jsonl", "the file to write")] = None,
    split: Annotated[str, parsing.option("NAME", "mine for the queries of this split")] = "train",
    source: Annotated[
        str, parsing.option("KIND", "ann, lookahead, bm25, ranking, random, or a YAML mapping as in a recipe")
    ] = "ann",
    top_k: Annotated[str | None, parsing.option("K", "candidates of a query, or auto")] = None,
    num_negatives: Annotated[
        int | None, parsing.count("N", "negatives of a query (default: the source's, or 8)")
    ] = None,
    filters: Annotated[list[str] | None, parsing.option("KIND[=VALUE] ...", "see below")] = None,
    format: Annotated[
        Literal["sentence-transformers", "tevatron"],
        parsing.option("FORMAT", "sentence-transformers or tevatron"),
    ] = "sentence-transformers",
    advise: Annotated[
        bool, parsing.flag("advise", "write nothing: how doubtful candidates are, and which method fits")
    ] = False,
    seed: Annotated[int, parsing.option("N", "the seed of the random choices", min=0)] = 42,
    device: parsing.Device = "auto",
    precision: parsing.PrecisionOption = "auto",
    tokens_per_batch: parsing.TokensPerBatch = None,
    cache: Annotated[Path | None, parsing.option("FOLDER", "the cache (default: the recipes')")] = None,
    encoder_settings: parsing.EncoderSettings = None,
) -> None:
    """Mine hard negatives with any encoder over any collection, for any trainer."""
    console.begin()
    from pyserini_ance.distributed.world import World
    from pyserini_ance.pipeline.advice import advise as advise_on
    from pyserini_ance.pipeline.mining import collection_files, load_collection, mine_negatives, read_source
    from pyserini_ance.recipe.models import Bm25, Encoding, cache_folder
    from pyserini_ance.recipe.yaml_text import read_argument
    from pyserini_ance.runs.any_encoder import load_any_encoder
    from pyserini_ance.storage.files import check_not_input

    if advise:
        other = source if source != "ann" else None
        given = {"output": output, "num_negatives": num_negatives, "top_k": top_k, "source": other}
        parsing.refuse_options("--advise looks at the first 200 of the index and writes nothing", **given)
    elif output is None:
        parsing.refuse("give --output FILE.jsonl for the negatives, or --advise")
    settings = read_argument(source, "--source") if source.startswith("{") else {"kind": source}
    if top_k is not None:  # `auto`: the sources ann and lookahead have it
        settings["top_k"] = int(top_k) if top_k.isdecimal() else top_k
    chosen = read_source(
        settings, [filter_settings(text) for text in filters or ()], num_negatives or "default"
    )
    own_files = [Path(settings["file"])] if settings.get("file") else []
    if output is not None:
        check_not_input(output, [collection, *collection_files(collection, split), *own_files])
        output.parent.mkdir(parents=True, exist_ok=True)
    given = parsing.encoder_settings(encoder_settings)
    with logging_redirect_tqdm(), World.join(device).session() as world:
        model = load_any_encoder(encoder, world.device, given=given)
        load = partial(load_collection, collection, cache=cache, split=split)
        if world.size > 1:  # the others then find it in the cache
            world.on_main(lambda: load() and None)
        texts = load()
        encoding = Encoding(precision=precision, tokens_per_batch=tokens_per_batch)
        common: Any = {"seed": seed, "encoding": encoding, "cache": cache_folder(cache), "world": world}
        if output is None and world.size > 1:
            parsing.refuse("--advise measures on one process; start it without torchrun")
        if output is None:
            return print(advise_on(model, texts, split, getattr(chosen, "filters", ()), **common).describe())
        mined = mine_negatives(model, texts, chosen, split, bm25=Bm25(), **common)
        world.on_main(lambda: mined.to_jsonl(output, format))
        if world.is_main:
            print(f"{mined.describe()}\n\n{output}: {len(mined):,} queries")


def filter_settings(text: str) -> Any:
    """A filter as in a recipe: `duplicates`, `relative_margin=0.05` (the first of its settings), or a YAML
    mapping with `kind`.

    Raises ValueError for an unknown kind, and for a value where the kind has no setting.
    """
    from pyserini_ance.recipe.components import Component, component_class
    from pyserini_ance.recipe.yaml_text import read_argument

    if text.startswith("{"):
        return read_argument(text, "--filters")
    kind, equals, value = text.partition("=")
    if not equals:
        return kind
    fields = component_class("filters", kind).model_fields
    own = [name for name in fields if name not in Component.model_fields]
    if not own:
        raise ValueError(f"--filters {text}: {kind} has no settings; write {kind}")
    return {"kind": kind, own[0]: read_argument(value, f"--filters {text}")}
