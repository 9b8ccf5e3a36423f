"""Prepare the data of a run: read, check, store and tokenize the collection before training."""

import importlib.util
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection import SIDES, Collection, Side, Texts
from pyserini_ance.data.collection_cache import cached_collection, open_collection, recorded
from pyserini_ance.data.formats.format import Format
from pyserini_ance.data.prepared import AnchorSet, PreparedData, merge_splits
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.adapters import check_trainable, require_package
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.initial import initial_tokenizer
from pyserini_ance.encoders.tokenization import describe_blank, split_into_passages, token_folder, token_store
from pyserini_ance.pipeline import data_checks
from pyserini_ance.pipeline.first_pass import first_pass_encoder, with_first_documents
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.splits import merged_name
from pyserini_ance.storage.files import sha256_json
from pyserini_ance.vectors.faiss_index import FLAT, check_index

log = logging.getLogger(__name__)


def check_tools(recipe: Recipe) -> None:
    """Raise RuntimeError if a tool is missing that the run would need only hours later, or at its end."""
    from pyserini_ance.pyserini_bridge.java import choose_java
    from pyserini_ance.trainer.trackers import check_trackers
    from pyserini_ance.vectors.faiss_library import require_faiss

    check_trackers(recipe.log_with)
    # The index of a run is written without faiss; Pyserini cannot search it without.
    if recipe.encoding.search == "faiss" or importlib.util.find_spec("pyserini"):
        require_faiss()
    if recipe.bm25 is not None or recipe.first_pass is not None:  # the export has a Lucene index of texts
        choose_java()
    for name, stage in recipe.stages.items():
        if stage.lora is not None:
            require_package("peft", f"stages.{name}.lora")
        if stage.optimizer.kind == "adamw_8bit":
            require_package("torchao", f"stages.{name}.optimizer.kind")


def check_encoder(recipe: Recipe, encoder: Encoder) -> None:
    """Raise ValueError for a term's `dimensions` or a search above the model's, an index that does not fit,
    and for layers that a stage cannot train as it is set."""
    dimension = encoder.dimension
    file = recipe.file or recipe.name
    numbers = f"the vectors of {recipe.encoder.model} have {dimension} numbers"
    for name, stage in recipe.stages.items():
        check_trainable(encoder.towers, stage, f"stages.{name}", recipe.shard)
        for key, term in stage.terms.items():
            if (most := max(term.dimensions or [0])) > dimension:
                key = f"stages.{name}.terms.{key}.dimensions"
                raise ValueError(f"{file}: {key} has {most}, but {numbers}; remove it")
    if isinstance(search := recipe.encoding.search, int) and search > dimension:
        raise ValueError(f"{file}: encoding.search is {search}, but {numbers}; lower it")
    live = {getattr(source, "index", FLAT) for source in recipe.sources if source.live}
    for index in {*recipe.final_evaluation.indexes, *live} - {FLAT}:
        check_index(dimension, index)


def recipe_data(recipe: Recipe) -> Format:
    """The recipe's data, restricted to the splits that it trains, evaluates or tests on."""
    training = recipe.train_split
    merged = {recipe.train_name} - set(training)  # not in the data: it is made of other splits
    if getattr(recipe.data, "splits", None) is not None:  # else the files say which splits there are
        data_checks.check_splits(recipe, [*recipe.data.split_names, *merged])
    return recipe.data.of_splits(
        {*training, *recipe.final_evaluation.split, *data_checks.dev_splits(recipe)} - merged
    )


def read_collection(recipe: Recipe, path: Path | None = None) -> Collection:
    """Read the data and check that it has the splits, measures and negatives that the recipe needs.

    path: a new file for the documents; without it they are kept in memory.
    """
    data_checks.check_before_reading(recipe)
    data = recipe_data(recipe).read(path, data_checks.only_trained_on(recipe), recipe.finds_positives)
    if recipe.first_pass is not None:
        encoder = first_pass_encoder(recipe)
        tokenized = tokenize_for(encoder.config, recipe.cache, tuple(data.splits)[:1], data)
        data = with_first_documents(recipe, encoder, tokenized)
    collection = merge_splits(data, recipe.train_name, recipe.train_split)
    data_checks.check_collection(recipe, collection)
    return collection


def stored_collection(recipe: Recipe) -> Collection:
    """The recipe's data, checked and memory-mapped from the cache; read again if the files have changed."""
    data_checks.check_before_reading(recipe)
    settings: dict[str, Any] = {
        "joint": [recipe.train_name, *recipe.train_split],
        "only trained on": sorted(data_checks.only_trained_on(recipe)),
        "keep unjudged": recipe.finds_positives,
    }
    if recipe.first_pass is not None:
        fields = recipe.encoder.tokenization.query.first_documents
        own = [each.model_dump(mode="json") for each in (recipe.first_pass, recipe.exact_encoding)]
        settings["first pass"] = [first_pass_encoder(recipe).digest(), fields, *own]
    read, check = partial(read_collection, recipe), partial(data_checks.check_collection, recipe)
    return cached_collection(recipe.cache, recipe_data(recipe), settings, read, check)


def read_rankings(recipe: Recipe, collection: Collection) -> None:
    """Read the ranking files that negatives are drawn from, and raise now what their stage would raise hours
    later.

    A file is read again for the same data and settings only if it has changed.
    """
    training = recipe.train_name
    data = [
        collection.documents.digest,
        collection.split(training).queries.digest,
        collection.split(training).qrels.digest,
        *sorted(collection.left_out),
    ]
    for anchor, of_anchor in recipe.anchored_sources:
        for source in (component for component in of_anchor.components if component.files):
            settings = {"negatives": source.model_dump(mode="json"), "data": data}
            anchor_set = AnchorSet.of(collection, collection.split(training), anchor)
            recorded(recipe.cache, settings, source.files, partial(source.read_ahead, collection, anchor_set))


def prepare(recipe: Recipe, world: World, digest: str | None = None) -> PreparedData:
    """The data of a run, memory-mapped; the main process reads and checks it, the others open it.

    `digest` is that of the data that an existing run was started with: if the cache holds it, nothing is read
    again.
    """

    def read() -> str:
        if digest and open_collection(recipe.cache, digest):
            return digest
        collection = stored_collection(recipe)
        read_rankings(recipe, collection)
        return collection.digest

    read_digest: str = world.on_main(read)
    # Another host may have a cache of its own.
    collection = open_collection(recipe.cache, read_digest) or stored_collection(recipe)
    if collection.digest != read_digest:
        raise ValueError(
            f"this process reads other data (digest {collection.digest[:12]}) than the main process "
            f"({read_digest[:12]}): {recipe.data}"
        )
    data = tokenize_together(recipe.encoder, recipe.cache, recipe.train_split, collection, world)
    return replace(data, last_positive_alone=recipe.knows_last_positive_alone)


def tokenize(recipe: Recipe, collection: Collection) -> PreparedData:
    """The collection with token stores of its documents and of each split's queries, from the cache if it has
    them."""
    data = tokenize_for(recipe.encoder, recipe.cache, recipe.train_split, collection)
    return replace(data, last_positive_alone=recipe.knows_last_positive_alone)


def tokenize_together(
    encoder: EncoderConfig, cache: Path, training: tuple[str, ...], collection: Collection, world: World
) -> PreparedData:
    """`tokenize_for` on all processes of `world`, of which the main one fills the cache, and warns of texts
    that are encoded as empty ones."""
    world.on_main(lambda: tokenize_for(encoder, cache, training, collection) and None)
    data = tokenize_for(encoder, cache, training, collection)
    template = encoder.tokenization.document.template
    warning = describe_blank(collection.documents, data.blank_documents, template)
    if world.is_main and warning:
        log.warning("%s", warning)
    return data


def tokenize_for(
    encoder: EncoderConfig, cache: Path, training: tuple[str, ...], collection: Collection
) -> PreparedData:
    tokenizer, tokenization = initial_tokenizer(encoder), encoder.tokenization
    of_sides: list[tuple[Side, Texts]] = [("document", collection.documents)]
    of_sides += [("query", split.queries) for split in collection.splits.values()]
    for side, texts in of_sides:
        key = f"encoder.tokenization.{side}.template"
        data_checks.check_template(key, tokenization.side(side), side, texts.columns)

    def store(side: Side, texts: Texts, label: str) -> TokenStore:
        return token_store(tokenizer, side, texts, token_folder(cache, tokenizer.key(side), texts), label)

    documents = store("document", collection.documents, "documents")
    splits = collection.splits.items()
    queries = {name: store("query", split.queries, f"{name} queries") for name, split in splits}
    key = sha256_json([*map(tokenizer.key, SIDES), tokenization.model_dump(mode="json")])
    blank_documents = documents.rows_of(tokenizer.blank("document"))
    documents, passages = split_into_passages(documents, tokenization)
    data = PreparedData(collection, documents, queries, merged_name(training), key, passages=passages)
    return replace(data, source_splits=training, blank_documents=blank_documents)
