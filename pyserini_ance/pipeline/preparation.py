"""Prepare the data of a run: read, check, store and tokenize the collection before training."""

import importlib.util
import logging
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyserini_ance.data.collection import SIDES, Collection, Side, Texts
from pyserini_ance.data.collection_cache import (
    CollectionRecord,
    InputRecord,
    open_collection,
    read_into_cache,
)
from pyserini_ance.data.formats.files import input_files
from pyserini_ance.data.formats.format import Format
from pyserini_ance.data.prepared import AnchorSet, PreparedData, merge_splits
from pyserini_ance.data.token_store import Specials, TokenStore, open_store, token_lengths
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.load_save import initial_files, initial_tokenizer
from pyserini_ance.encoders.tokenization import (
    KEY_VERSION,
    TextTokenizer,
    Truncation,
    describe_blank,
    split_into_passages,
    token_folder,
    token_store,
)
from pyserini_ance.pipeline.data_checks import (
    check_before_reading,
    check_collection,
    check_splits,
    check_template,
    dev_splits,
)
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.storage.files import sha256_json
from pyserini_ance.storage.publish import is_complete
from pyserini_ance.vectors.faiss_index import FLAT, check_index

log = logging.getLogger(__name__)


def check_tools(recipe: Recipe) -> None:
    """Raise RuntimeError if a tool is missing that the run would need only hours later, or at its end."""
    from pyserini_ance.pyserini_bridge.java import choose_java
    from pyserini_ance.pyserini_bridge.vector_files import require_faiss
    from pyserini_ance.trainer.trackers import check_trackers

    check_trackers(recipe.log_with)
    # The index of a run is written without faiss; Pyserini cannot search it without.
    if recipe.encoding.search == "faiss" or importlib.util.find_spec("pyserini"):
        require_faiss()
    if recipe.bm25 is not None:
        choose_java()


def recipe_data(recipe: Recipe) -> Format:
    """The recipe's data, restricted to the splits that it trains, evaluates or tests on."""
    training = recipe.train_split
    merged = {training.name} - set(training.splits)  # not in the data: it is made of other splits
    if getattr(recipe.data, "splits", None) is not None:  # else the files say which splits there are
        check_splits(recipe, [*recipe.data.split_names, *merged])
    return recipe.data.of_splits(
        {*training.splits, *recipe.final_evaluation.split, *dev_splits(recipe)} - merged
    )


def recorded_splits(recipe: Recipe) -> list[str]:
    """The splits whose judgments a run directory records: those that are tested on, and one that is cut from
    the training queries."""
    hold_out = recipe_data(recipe).hold_out
    return list(dict.fromkeys([*recipe.final_evaluation.split, *([hold_out.split] if hold_out else [])]))


def read_collection(recipe: Recipe, path: Path | None = None) -> Collection:
    """Read the data and check that it has the splits, measures and negatives that the recipe needs.

    path: a new file for the documents; without it they are kept in memory.
    """
    check_before_reading(recipe)
    training = recipe.train_split
    data = recipe_data(recipe).read(path, lambda fields: check_template(recipe, "document", fields))
    collection = merge_splits(data, training.name, training.splits)
    check_collection(recipe, collection)
    return collection


def stored_collection(recipe: Recipe) -> Collection:
    """The recipe's data, checked and memory-mapped from the cache; read again if the files have changed."""
    check_before_reading(recipe)
    files, settings = input_files(recipe_data(recipe)), _data_settings(recipe)
    record = CollectionRecord(recipe.cache, settings, files if files or recipe.data.by_name else None)
    collection = record.load()
    if collection is None:
        collection = read_into_cache(recipe.cache, lambda path: read_collection(recipe, path))
        record.save(collection)
    else:
        collection.log_skipped()
        check_collection(recipe, collection)
    return collection


def _data_settings(recipe: Recipe) -> dict[str, object]:
    """The settings that decide what is read."""
    return {
        "data": recipe_data(recipe).model_dump(mode="json", exclude={"official"}),
        "joint": [recipe.train_split.name, *recipe.train_split.splits],
    }


def read_rankings(recipe: Recipe, collection: Collection) -> None:
    """Read the ranking files that negatives are drawn from, and raise now what their stage would raise hours
    later.

    A file is read again for the same data and settings only if it has changed.
    """
    training = recipe.train_split.name
    data = [
        collection.documents.digest,
        collection.split(training).queries.digest,
        collection.split(training).qrels.digest,
        *sorted(collection.left_out),
    ]
    for anchor, of_anchor in recipe.anchored_sources:
        for source in (component for component in of_anchor.components if component.files):
            settings = {"negatives": source.model_dump(mode="json"), "data": data}
            record = InputRecord(recipe.cache, settings, source.files)
            if record.load() is None:
                log.info("checking the rankings of negatives: %s", ", ".join(map(str, source.files)))
                source.read_ahead(collection, AnchorSet.of(collection, training, anchor))
                record.save({})


def prepare(recipe: Recipe, world: World, digest: str | None = None) -> PreparedData:
    """The data of a run, memory-mapped; the main process reads and checks it, the others open it.

    `digest` is that of the data that an existing run was started with: if the cache holds it, nothing is read
    again.
    """

    def read() -> str:
        if digest and find_collection(recipe, digest):
            return digest
        collection = stored_collection(recipe)
        read_rankings(recipe, collection)
        return collection.digest

    read_digest: str = world.on_main(read)
    # Another host may have a cache of its own.
    collection = find_collection(recipe, read_digest) or stored_collection(recipe)
    if collection.digest != read_digest:
        raise ValueError(
            f"this process reads other data (digest {collection.digest[:12]}) than the main process "
            f"({read_digest[:12]}): {recipe.data}"
        )
    world.on_main(lambda: tokenize_and_warn(recipe, collection))
    return tokenize(recipe, collection)


def find_collection(recipe: Recipe, digest: str) -> Collection | None:
    """The collection with that digest, memory-mapped; None if the recipe's cache does not hold it."""
    return open_collection(recipe.cache, digest)


def check_indexes(recipe: Recipe, dimension: int) -> None:
    """Raise ValueError if an index of a source or of `final_evaluation.indexes` cannot hold vectors of that
    dimension."""
    live = {getattr(source, "index", FLAT) for source in recipe.sources if source.live}
    for index in {*recipe.final_evaluation.indexes, *live} - {FLAT}:
        check_index(dimension, index)


def encoder_record(recipe: Recipe, subject: str, record_version: int) -> InputRecord:
    """A record about the encoder that the recipe starts from: valid while its files and settings, and the
    libraries that load it, are the same. There is none for a model of the hub."""
    settings = {
        "subject": subject,
        "version": record_version,
        "encoder": recipe.encoder.model_dump(mode="json"),
        "packages": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
    }
    return InputRecord(recipe.cache, settings, initial_files(recipe.encoder))


class InitialTokenizer:
    """The tokenizer of the encoder that a recipe starts from, loaded only for texts that the cache lacks.

    Its keys, special tokens and `blank_document`, the ids of a document without text, are recorded in the
    cache, because loading it takes seconds.
    """

    def __init__(self, recipe: Recipe):
        self._recipe = recipe
        record = encoder_record(recipe, "tokenizer", KEY_VERSION)
        about: dict[str, Any] | None = record.load()
        if about is None:
            keys = {side: self.loaded.key(side) for side in SIDES}
            blank = self.loaded.blank("document")
            about = {"keys": keys, "specials": self.loaded.specials._asdict(), "blank_document": blank}
            record.save(about)
        self._keys, specials = about["keys"], about["specials"]
        self.blank_document: list[int] = about["blank_document"]
        self.specials = Specials(tuple(specials["before"]), tuple(specials["after"]), specials["pad"])

    @cached_property
    def loaded(self) -> TextTokenizer:
        return initial_tokenizer(self._recipe.encoder)

    def key(self, side: Side) -> str:
        """That of `TextTokenizer.key`."""
        return str(self._keys[side])

    def folder(self, side: Side, texts: Texts) -> Path:
        """The folder of the cache for the token ids of `texts`."""
        return token_folder(self._recipe.cache, self.key(side), texts)

    def store(self, side: Side, texts: Texts, label: str) -> TokenStore:
        """The token ids of `texts`, from the cache if it has them."""
        folder = self.folder(side, texts)
        if is_complete(folder):
            return open_store(folder, self.specials)
        return token_store(self.loaded, side, texts, folder, label)


def tokenize(recipe: Recipe, collection: Collection) -> PreparedData:
    """The collection with token stores of its documents and of each split's queries, from the cache if it has
    them."""
    tokenizer = InitialTokenizer(recipe)
    tokenization, training = recipe.encoder.tokenization, recipe.train_split
    check_template(recipe, "document", collection.documents.columns)
    check_template(recipe, "query", collection.split(training.name).queries.columns)
    documents = tokenizer.store("document", collection.documents, "documents")
    queries = {
        name: tokenizer.store("query", split.queries, f"{name} queries")
        for name, split in collection.splits.items()
    }
    key = sha256_json(
        [tokenizer.key("query"), tokenizer.key("document"), tokenization.model_dump(mode="json")]
    )
    blank_documents = documents.rows_of(tokenizer.blank_document)
    documents, passages = split_into_passages(documents, tokenization)
    return PreparedData(
        collection,
        documents,
        queries,
        training.name,
        key,
        passages=passages,
        source_splits=training.splits,
        positives=training.positives,
        blank_documents=blank_documents,
    )


def tokenize_and_warn(recipe: Recipe, collection: Collection) -> None:
    """Tokenize the collection into the cache; warn of documents that are encoded as empty texts."""
    if warning := blank_warning(recipe, tokenize(recipe, collection)):
        log.warning("%s", warning)


def blank_warning(recipe: Recipe, data: PreparedData) -> str | None:
    """A warning about documents that are encoded as empty texts; None without any."""
    template = recipe.encoder.tokenization.document.template
    return describe_blank(data.collection.documents, data.blank_documents, template)


@dataclass(frozen=True)
class TokenizedTexts:
    """The documents, or the queries of a split, as tokens in the cache; `tokens` without special ones."""

    folder: Path
    tokens: int
    truncation: Truncation


def tokenized_texts(recipe: Recipe, collection: Collection) -> dict[str, TokenizedTexts]:
    """What `tokenize` left in the cache: `documents`, and the queries by split, the training split first."""
    tokenizer = InitialTokenizer(recipe)
    training = recipe.train_split.name
    names = sorted(collection.splits, key=lambda name: (name != training, name))
    sides: dict[str, tuple[Side, Texts]] = {"documents": ("document", collection.documents)}
    sides |= {name: ("query", collection.split(name).queries) for name in names}
    tokenized = {}
    for name, (side, texts) in sides.items():
        folder = tokenizer.folder(side, texts)
        lengths = token_lengths(folder)
        truncation = Truncation.of(lengths, tokenizer.specials, recipe.encoder.tokenization.side(side))
        tokenized[name] = TokenizedTexts(folder, int(lengths.sum()), truncation)
    return tokenized
