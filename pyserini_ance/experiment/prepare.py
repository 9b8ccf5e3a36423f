"""Everything that is read before training: the collection, checked; its token ids."""

import logging
import re
from collections.abc import Iterable
from pathlib import Path

from pyserini_ance.data.collection import Collection, Side, Texts
from pyserini_ance.data.cut import cut, fill_up
from pyserini_ance.data.direction import Direction
from pyserini_ance.data.formats.format import Format
from pyserini_ance.data.formats.official import found_files
from pyserini_ance.data.joint import with_joint
from pyserini_ance.data.passages import Passages, refuse_delimiter
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.readings import Note, Reading
from pyserini_ance.data.stored import open_collection, reading_room, store_collection
from pyserini_ance.data.token_store import TokenStore, open_or_build
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import start_tokenizer
from pyserini_ance.encoders.tokenization import TextTokenizer, Tokenization
from pyserini_ance.experiment.candidates import candidates_file, read_candidates
from pyserini_ance.measures.coverage import CUTOFFS, is_of_answers, success_at
from pyserini_ance.recipe.measure import parse
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.products import Evaluate
from pyserini_ance.storage.files import sha256_json
from pyserini_ance.vectors.index import FLAT, check_index

log = logging.getLogger(__name__)


def check_tools(recipe: Recipe) -> None:
    """Raises RuntimeError when something is missing that would be needed only at the end, or far into a run."""
    from pyserini_ance.pyserini_bridge.export import require_faiss
    from pyserini_ance.pyserini_bridge.java import choose_java

    require_faiss()
    if recipe.bm25 is not None:
        choose_java()


def data_of(recipe: Recipe) -> Format:
    """The recipe's data with those splits alone that it trains, evaluates, or tests on."""
    joint = {recipe.train_split.name} - set(recipe.train_split.splits)  # made of others
    return recipe.data.of_splits({*recipe.train_split.splits, *recipe.test.split, *_evaluated(recipe)} - joint)


def read_collection(recipe: Recipe, documents: Path | None = None) -> Collection:
    """Read and check the data, and that what the recipe asks of it, its splits, measures and negatives, can be had.

    `documents` is a folder that is made for them, as `Format.read` has it; without, they are in memory.
    """
    _check_before_reading(recipe)
    training = recipe.train_split
    data = data_of(recipe).read(documents, lambda fields: _check_template(recipe, "document", fields))
    collection = with_joint(data, training.name, training.splits)
    check_collection(recipe, collection)
    return collection


def stored_collection(recipe: Recipe) -> Collection:
    """The recipe's data, checked, memory-mapped from the cache: read now, unless the same files were read before."""
    _check_before_reading(recipe)
    files = found_files(data_of(recipe))
    reading = Reading(recipe.cache, _settings_of_reading(recipe), files if files or recipe.data.by_name else None)
    collection = reading.recall()
    if collection is None:
        with reading_room(recipe.cache) as documents:
            collection = map_collection(recipe, read_collection(recipe, documents))
        reading.remember(collection)
    else:
        collection.log_skipped()
        check_collection(recipe, collection)
    return collection


def _settings_of_reading(recipe: Recipe) -> dict:
    return {"data": data_of(recipe).model_dump(mode="json", exclude={"official"}), "joint": [recipe.train_split.name, *recipe.train_split.splits]}


def check_collection(recipe: Recipe, collection: Collection) -> None:
    """Raises ValueError or FileNotFoundError where the recipe asks for what the data does not have."""
    training = recipe.train_split
    for name in sorted({training.name, *recipe.test.split, *_evaluated(recipe)}):
        collection.split(name)
    if recipe.encoder.tokenization.document.passages > 1:
        refuse_delimiter(collection.documents.ids)
    _check_unjudged(recipe, collection)
    _check_chunks(recipe, collection)
    for split, rerank in recipe.test.reranked.items():
        if rerank.file:
            read_candidates(rerank, collection.split(split), collection.documents, rerank.file)
    for term in (term for stage in recipe.stages.values() for term in stage.terms.values()):
        for source in term.negatives:
            source.check_data(Direction.of(collection, training.name, term.anchor))


def read_rankings(recipe: Recipe, collection: Collection) -> None:
    """Read the files that negatives are mined from, which happens hours later where their stage is not the first. Raises what mining would.

    A file is read again for the same data and settings only when it has changed.
    """
    training = recipe.train_split.name
    data = [collection.documents.digest, collection.split(training).queries.digest, collection.split(training).qrels.digest]
    for term in (term for stage in recipe.stages.values() for term in stage.terms.values()):
        for source in (leaf for leaf in term.leaves if leaf.files):
            note = Note(recipe.cache, {"negatives": source.model_dump(mode="json"), "data": data}, source.files)
            if note.recall() is None:
                log.info("reading ahead what negatives are mined from: %s", ", ".join(map(str, source.files)))
                source.read_ahead(collection, Direction.of(collection, training, term.anchor))
                note.remember({})


def _evaluations(recipe: Recipe) -> list[Evaluate]:
    return [stage.evaluate for stage in recipe.stages.values() if stage.evaluate]


def _evaluated(recipe: Recipe) -> set[str]:
    return {split for evaluation in _evaluations(recipe) for split in evaluation.split}


def prepare(recipe: Recipe, world: World, digest: str | None = None) -> PreparedData:
    """The data of a run, memory-mapped: read and checked by the first process, opened by the others.

    With `digest`, that of the data a run was begun with, it is not read again where the cache knows it.
    """

    def read() -> str:
        if digest and find_collection(recipe, digest):
            return digest
        collection = stored_collection(recipe)
        read_rankings(recipe, collection)
        return collection.digest

    digest = world.once(read)
    # Another host may have a cache of its own.
    collection = find_collection(recipe, digest) or stored_collection(recipe)
    if collection.digest != digest:
        raise ValueError(f"this process reads other data (digest {collection.digest[:12]}) than the first ({digest[:12]}): {recipe.data}")
    world.once(lambda: tokenise(recipe, collection) and None)
    return tokenise(recipe, collection)


def map_collection(recipe: Recipe, collection: Collection) -> Collection:
    """The same collection, memory-mapped from the cache, where it is stored first unless it is there."""
    store_collection(collection, recipe.cache)
    mapped = open_collection(recipe.cache, collection.digest)
    # What was skipped, and the order of the splits, are not in the digest: another reading may have stored it.
    return Collection(mapped.documents, {name: mapped.split(name) for name in collection.splits}, collection.skipped)


def find_collection(recipe: Recipe, digest: str) -> Collection | None:
    """The collection of that digest, memory-mapped, when the recipe's cache holds it."""
    return open_collection(recipe.cache, digest)


def _check_before_reading(recipe: Recipe) -> None:
    """What can be known without the data, which may take long to read."""
    _check_measures(recipe)
    _named_rankings(recipe)


def _named_rankings(recipe: Recipe) -> list[Path]:
    """Files that negatives are mined from, or that are put in another order. Raises FileNotFoundError for one that is not there."""
    mined = [file for stage in recipe.stages.values() for source in stage.leaves for file in source.files]
    return mined + [file for split, rerank in recipe.test.reranked.items() if (file := candidates_file(rerank, split))]


def _check_measures(recipe: Recipe) -> None:
    """A measure that looks deeper than the ranking, or counts other grades than training does, would be a wrong number."""
    test = recipe.test
    asked = [("test.hits", test.hits, measure) for split in test.split for measure in test.measures_of(split) + test.query_measures_of(split)]
    asked += [(f"test.rerank.{split}.hits", rerank.hits, measure) for split, rerank in test.reranked.items() for measure in parse(rerank.measures)]
    for key, hits, measure in asked:
        cutoff = measure.params.get("cutoff") or 0
        if cutoff > hits:
            raise ValueError(f"measure {measure} looks at {cutoff} documents, but {key} is {hits}; set {key}={cutoff}")
    on_dev = parse(evaluation.measure for evaluation in _evaluations(recipe))  # ranked as deep as the measure looks
    threshold = recipe.data.relevance_threshold
    for measure in [*(measure for _, _, measure in asked), *on_dev]:
        if threshold > 1 and "rel" in measure.SUPPORTED_PARAMS and measure.params.get("rel", 1) != threshold:
            name, _, at = str(measure).partition("@")
            cure = f"{name}(rel={threshold}){'@' + at if at else ''}"
            raise ValueError(f"data.relevance_threshold is {threshold}, but measure {measure} counts grade 1 as relevant; write {cure}")


def _check_unjudged(recipe: Recipe, collection: Collection) -> None:
    """A split without judgments can be tested on, by the answers that passages hold, and nothing else."""
    test = recipe.test
    for name in (split.name for split in collection.splits.values() if not split.is_judged):
        if name in {*recipe.train_split.splits, *_evaluated(recipe)}:
            raise ValueError(
                f"split {name!r}, on which the recipe trains or evaluates, does not say what is relevant; give it `qrels`, or DPR's .json file "
                "with positive_ctxs; questions with answers alone can only be tested on"
            )
        if test.query_measures_of(name):
            raise ValueError(f"test.query_measures need judgments, which split {name!r} has none of; name those of other splits: {{SPLIT: [...]}}")
        reranked = parse(test.rerank[name].measures) if name in test.reranked else []
        if others := [measure for measure in [*test.measures_of(name), *reranked] if not is_of_answers(measure)]:
            raise ValueError(
                f"split {name!r} has no judgments: its passages are judged by the answers they hold, for {', '.join(map(str, success_at(CUTOFFS)))} "
                f"alone, but it is measured by {others[0]}; say its own under test.measures={{{name}: [...]}}"
            )


def _check_chunks(recipe: Recipe, collection: Collection) -> None:
    queries, split = min((len(collection.split(name).queries), name) for name in recipe.train_split.splits)
    for name, stage in recipe.stages.items():
        if stage.refresh and stage.refresh.chunks > queries:
            chunks = stage.refresh.chunks
            raise ValueError(f"stages.{name}.refresh.chunks is {chunks}, but there are only {queries} training queries in {split!r}; lower it")


def check_indexes(recipe: Recipe, dimension: int) -> None:
    """Raises ValueError when a source, or `test.indexes`, names an index that cannot be made over vectors of that dimension."""
    for index in {*recipe.test.indexes, *(source.index for source in recipe.sources if source.live)} - {FLAT}:
        check_index(dimension, index)


def tokenise(recipe: Recipe, collection: Collection) -> PreparedData:
    """Token stores of the documents and of each split's queries, from the cache where they are known."""
    tokenizer = start_tokenizer(recipe.encoder)
    _check_template(recipe, "document", collection.documents.columns)
    _check_template(recipe, "query", collection.split(recipe.train_split.name).queries.columns)
    documents = _cached(recipe.cache, tokenizer, "document", collection.documents, "documents")
    queries = {name: _cached(recipe.cache, tokenizer, "query", split.queries, f"{name} queries") for name, split in collection.splits.items()}
    tokenization = [tokenizer.key("query"), tokenizer.key("document"), recipe.encoder.tokenization.model_dump(mode="json")]
    documents, passages = in_passages(documents, recipe.encoder.tokenization)
    training = recipe.train_split
    return PreparedData(collection, documents, queries, training.name, sha256_json(tokenization), passages=passages, parts=training.splits)


def _check_template(recipe: Recipe, side: Side, fields: Iterable[str]) -> None:
    """A template that names a field which no record has would train on blank texts; titles alone may be missing."""
    template = recipe.encoder.tokenization.side(side).template
    unknown = [field for field in re.findall(r"\{(\w+)\}", template) if field not in fields and field != "title"]
    if unknown:
        raise ValueError(
            f"encoder.tokenization.{side}.template is {template!r}, but a {side} of this collection has no field "
            f"{', '.join(unknown)}; fields: {', '.join(fields)}"
        )


def token_store(tokenizer: TextTokenizer, side: Side, texts: Texts, folder: Path, label: str) -> TokenStore:
    """The token ids of `texts`, written into `folder` unless they are there."""
    return open_or_build(folder, texts, lambda records: tokenizer.ids(side, records), tokenizer.specials, len(tokenizer.tokenizer), label)


def in_passages(documents: TokenStore, tokenization: Tokenization) -> tuple[TokenStore, Passages | None]:
    """The rows that are encoded of documents, and which are of which; None where each has one."""
    reading = tokenization.document
    if reading.passages == 1:
        return documents, None
    passages = cut(documents, reading.length_tokens, reading.passages, reading.special_tokens)
    return fill_up(*passages, reading.passages) if reading.empty_passages == "index" else passages


def _cached(cache: Path, tokenizer: TextTokenizer, side: Side, texts: Texts, label: str) -> TokenStore:
    return token_store(tokenizer, side, texts, token_folder(cache, tokenizer, side, texts), label)


def token_folder(cache: Path, tokenizer: TextTokenizer, side: Side, texts: Texts) -> Path:
    return cache / "tokens" / f"{texts.digest[:32]}-{tokenizer.key(side)[:32]}"
