"""Prepare the data of a run: read, check, store and tokenize the collection before training."""

import logging
import re
from collections.abc import Iterable
from pathlib import Path

from pyserini_ance.data.collection import Collection, Side, Texts
from pyserini_ance.data.collection_cache import (
    CollectionRecord,
    InputRecord,
    open_collection,
    store_collection,
    temporary_corpus_folder,
)
from pyserini_ance.data.formats.format import Format, input_files
from pyserini_ance.data.passages import check_delimiter
from pyserini_ance.data.prepared import AnchorSet, PreparedData, merge_splits
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.load_save import initial_tokenizer
from pyserini_ance.encoders.tokenization import TextTokenizer, split_into_passages, token_folder, token_store
from pyserini_ance.evaluation.answer_measures import CUTOFFS, is_of_answers, success_at
from pyserini_ance.pipeline.bm25_rankings import candidates_file, read_candidates
from pyserini_ance.recipe.evaluation_settings import parse_measures
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.refresh_settings import Evaluate
from pyserini_ance.storage.files import sha256_json
from pyserini_ance.vectors.faiss_index import FLAT, check_index

log = logging.getLogger(__name__)


def check_tools(recipe: Recipe) -> None:
    """Raise RuntimeError if a tool is missing that the run would need only hours later, or at its end."""
    from pyserini_ance.pyserini_bridge.export import require_faiss
    from pyserini_ance.pyserini_bridge.java import choose_java

    require_faiss()
    if recipe.bm25 is not None:
        choose_java()


def recipe_data(recipe: Recipe) -> Format:
    """The recipe's data, restricted to the splits that it trains, evaluates or tests on."""
    training = recipe.train_split
    merged = {training.name} - set(training.splits)  # not in the data: it is made of other splits
    return recipe.data.of_splits(
        {*training.splits, *recipe.final_evaluation.split, *_dev_splits(recipe)} - merged
    )


def read_collection(recipe: Recipe, documents: Path | None = None) -> Collection:
    """Read the data and check that it has the splits, measures and negatives that the recipe needs.

    `documents` is an empty folder that receives the texts of the documents (see `Format.read`); without it
    they are kept in memory.
    """
    _check_before_reading(recipe)
    training = recipe.train_split
    data = recipe_data(recipe).read(documents, lambda fields: _check_template(recipe, "document", fields))
    collection = merge_splits(data, training.name, training.splits)
    check_collection(recipe, collection)
    return collection


def stored_collection(recipe: Recipe) -> Collection:
    """The recipe's data, checked and memory-mapped from the cache; read again if the files have changed."""
    _check_before_reading(recipe)
    files = input_files(recipe_data(recipe))
    record = CollectionRecord(
        recipe.cache, _data_settings(recipe), files if files or recipe.data.by_name else None
    )
    collection = record.load()
    if collection is None:
        with temporary_corpus_folder(recipe.cache) as documents:
            collection = store_and_map(recipe, read_collection(recipe, documents))
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


def check_collection(recipe: Recipe, collection: Collection) -> None:
    """Raise ValueError or FileNotFoundError if the recipe needs something that the data does not have."""
    training = recipe.train_split
    for name in sorted({training.name, *recipe.final_evaluation.split, *_dev_splits(recipe)}):
        collection.split(name)
    if recipe.encoder.tokenization.document.passages > 1:
        check_delimiter(collection.documents.ids)
    _check_unjudged(recipe, collection)
    _check_chunks(recipe, collection)
    for split, rerank in recipe.final_evaluation.reranked.items():
        if rerank.file:
            read_candidates(rerank, collection.split(split), collection.documents, rerank.file)
    for term in (term for stage in recipe.stages.values() for term in stage.terms.values()):
        for source in term.negatives:
            source.check_data(AnchorSet.of(collection, training.name, term.anchor))
        if term.teacher is not None:
            term.teacher.check_data(AnchorSet.of(collection, training.name, term.anchor))


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
    ]
    for term in (term for stage in recipe.stages.values() for term in stage.terms.values()):
        for source in (component for component in term.components if component.files):
            settings = {"negatives": source.model_dump(mode="json"), "data": data}
            record = InputRecord(recipe.cache, settings, source.files)
            if record.load() is None:
                log.info("checking the rankings of negatives: %s", ", ".join(map(str, source.files)))
                source.read_ahead(collection, AnchorSet.of(collection, training, term.anchor))
                record.save({})


def _dev_evaluations(recipe: Recipe) -> list[Evaluate]:
    return [stage.evaluate for stage in recipe.stages.values() if stage.evaluate]


def _dev_splits(recipe: Recipe) -> set[str]:
    return {split for evaluation in _dev_evaluations(recipe) for split in evaluation.split}


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
    world.on_main(lambda: tokenize(recipe, collection) and None)
    return tokenize(recipe, collection)


def store_and_map(recipe: Recipe, collection: Collection) -> Collection:
    """The same collection, memory-mapped from the cache, where it is stored first if necessary."""
    store_collection(collection, recipe.cache)
    mapped = open_collection(recipe.cache, collection.digest)
    assert mapped is not None
    # The digest covers neither the skipped lines nor the order of the splits: another recipe may have stored
    # it.
    splits = {name: mapped.split(name) for name in collection.splits}
    return Collection(mapped.documents, splits, collection.skipped)


def find_collection(recipe: Recipe, digest: str) -> Collection | None:
    """The collection with that digest, memory-mapped; None if the recipe's cache does not hold it."""
    return open_collection(recipe.cache, digest)


def _check_before_reading(recipe: Recipe) -> None:
    """Check everything that does not need the data, which may take long to read."""
    _check_measures(recipe)
    _check_files(recipe)


def _check_files(recipe: Recipe) -> None:
    """Raise FileNotFoundError if a file is missing that negatives are drawn from, that a teacher reads, or
    whose documents are reranked."""
    for stage in recipe.stages.values():
        _ = [source.files for source in stage.components]
        _ = [teacher.files for teacher in stage.teachers.values()]
    for split, rerank in recipe.final_evaluation.reranked.items():
        candidates_file(rerank, split)


def _check_measures(recipe: Recipe) -> None:
    """Raise ValueError for measures that would be wrong.

    A measure must not have a cutoff beyond the ranking, nor count other grades as relevant than training
    does.
    """
    test = recipe.final_evaluation
    checked = [
        ("final_evaluation.hits", test.hits, measure)
        for split in test.split
        for measure in test.measures_of(split) + test.query_measures_of(split)
    ]
    checked += [
        (f"final_evaluation.rerank.{split}.hits", rerank.hits, measure)
        for split, rerank in test.reranked.items()
        for measure in parse_measures(rerank.measures)
    ]
    for key, hits, measure in checked:
        cutoff = measure.params.get("cutoff") or 0
        if cutoff > hits:
            raise ValueError(
                f"measure {measure} looks at {cutoff} documents, but {key} is {hits}; set {key}={cutoff}"
            )
    # Dev rankings are as long as the measure needs.
    on_dev = parse_measures(evaluation.measure for evaluation in _dev_evaluations(recipe))
    threshold = recipe.data.relevance_threshold
    for measure in [*(measure for _, _, measure in checked), *on_dev]:
        if threshold > 1 and "rel" in measure.SUPPORTED_PARAMS and measure.params.get("rel", 1) != threshold:
            name, _, at = str(measure).partition("@")
            cure = f"{name}(rel={threshold}){'@' + at if at else ''}"
            raise ValueError(
                f"data.relevance_threshold is {threshold}, but measure {measure} counts grade 1 as relevant; "
                f"write {cure}"
            )


def _check_unjudged(recipe: Recipe, collection: Collection) -> None:
    """Raise ValueError if a split without judgments is not only tested on by the answers in passages."""
    test = recipe.final_evaluation
    for name in (split.name for split in collection.splits.values() if not split.is_judged):
        if name in {*recipe.train_split.splits, *_dev_splits(recipe)}:
            raise ValueError(
                f"split {name!r}, on which the recipe trains or evaluates, has no judgments; give it "
                "`qrels`, or "
                "DPR's .json file with positive_ctxs. Questions with answers alone can only be tested on"
            )
        if test.query_measures_of(name):
            raise ValueError(
                f"final_evaluation.query_measures need judgments, but split {name!r} has none; list "
                "other splits: "
                "{SPLIT: [...]}"
            )
        reranked = parse_measures(test.rerank[name].measures) if name in test.reranked else []
        others = [measure for measure in [*test.measures_of(name), *reranked] if not is_of_answers(measure)]
        if others:
            raise ValueError(
                f"split {name!r} has no judgments: its passages are judged by the answers they "
                "contain, and only "
                f"{', '.join(map(str, success_at(CUTOFFS)))} can measure that, not {others[0]}; set its "
                "own measures "
                f"with final_evaluation.measures={{{name}: [...]}}"
            )


def _check_chunks(recipe: Recipe, collection: Collection) -> None:
    queries, split = min((len(collection.split(name).queries), name) for name in recipe.train_split.splits)
    for name, stage in recipe.stages.items():
        if stage.refresh and stage.refresh.query_chunks > queries:
            raise ValueError(
                f"stages.{name}.refresh.query_chunks is {stage.refresh.query_chunks}, but {split!r} has "
                f"only {queries} "
                "training queries; lower it"
            )


def check_indexes(recipe: Recipe, dimension: int) -> None:
    """Raise ValueError if an index of a source or of `final_evaluation.indexes` cannot hold vectors of that
    dimension."""
    live = {getattr(source, "index", FLAT) for source in recipe.sources if source.live}
    for index in {*recipe.final_evaluation.indexes, *live} - {FLAT}:
        check_index(dimension, index)


def tokenize(recipe: Recipe, collection: Collection) -> PreparedData:
    """The collection with token stores of its documents and of each split's queries, from the cache if it has
    them."""
    tokenizer = initial_tokenizer(recipe.encoder)
    tokenization, training = recipe.encoder.tokenization, recipe.train_split
    _check_template(recipe, "document", collection.documents.columns)
    _check_template(recipe, "query", collection.split(training.name).queries.columns)
    documents = _cached_tokens(recipe.cache, tokenizer, "document", collection.documents, "documents")
    queries = {
        name: _cached_tokens(recipe.cache, tokenizer, "query", split.queries, f"{name} queries")
        for name, split in collection.splits.items()
    }
    key = sha256_json(
        [tokenizer.key("query"), tokenizer.key("document"), tokenization.model_dump(mode="json")]
    )
    documents, passages = split_into_passages(documents, tokenization)
    return PreparedData(
        collection, documents, queries, training.name, key, passages=passages, source_splits=training.splits
    )


def _check_template(recipe: Recipe, side: Side, fields: Iterable[str]) -> None:
    """Raise ValueError if a template names a field that no record has: training would use blank texts.

    Titles alone may be missing.
    """
    template = recipe.encoder.tokenization.side(side).template
    named = re.findall(r"\{(\w+)\}", template)
    unknown = [field for field in named if field not in fields and field != "title"]
    if unknown:
        raise ValueError(
            f"encoder.tokenization.{side}.template is {template!r}, but a {side} of this collection "
            "has no field "
            f"{', '.join(unknown)}; fields: {', '.join(fields)}"
        )


def _cached_tokens(cache: Path, tokenizer: TextTokenizer, side: Side, texts: Texts, label: str) -> TokenStore:
    return token_store(tokenizer, side, texts, token_folder(cache, tokenizer, side, texts), label)
