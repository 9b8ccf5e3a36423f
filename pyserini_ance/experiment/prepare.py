"""Everything that is read before training: the collection, checked; its token ids; BM25's rankings."""

import logging
import re
from pathlib import Path

from pyserini_ance.data.collection import Collection, Texts
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.token_store import TokenStore, open_or_build
from pyserini_ance.encoders.checkpoint import start_tokenizer
from pyserini_ance.encoders.tokenization import Side, TextTokenizer
from pyserini_ance.measures.evaluate import parse
from pyserini_ance.negatives.source import Source
from pyserini_ance.recipe.models import Recipe

log = logging.getLogger(__name__)


def read_collection(recipe: Recipe) -> Collection:
    """Read and check the data, and that what the recipe asks of it, its splits, measures and negatives, can be had."""
    evaluations = [stage.evaluate for stage in recipe.stages.values() if stage.evaluate]
    parse([*recipe.test.measures, *(evaluation.measure for evaluation in evaluations)])
    collection = recipe.data.read()
    for name in sorted({recipe.train_split, recipe.test.split, *(evaluation.split for evaluation in evaluations)}):
        collection.split(name)
    for source in sources(recipe):
        source.check_data(collection.split(recipe.train_split), len(collection.documents))
    return collection


def sources(recipe: Recipe) -> list[Source]:
    return [source for stage in recipe.stages.values() for term in stage.terms.values() for source in term.negatives]


def tokenise(recipe: Recipe, collection: Collection) -> PreparedData:
    """Token stores of the documents and of each split's queries, from the cache where they are known."""
    tokenizer = start_tokenizer(recipe.encoder)
    _check_templates(recipe, collection)
    documents = _store(recipe.cache, tokenizer, "document", collection.documents, "documents")
    queries = {name: _store(recipe.cache, tokenizer, "query", split.queries, f"{name} queries") for name, split in collection.splits.items()}
    return PreparedData(collection, documents, queries, recipe.train_split)


def _check_templates(recipe: Recipe, collection: Collection) -> None:
    """A template that names a field which no record has would train on blank texts; titles alone may be missing."""
    for side, columns in (("document", collection.documents.columns), ("query", collection.split(recipe.train_split).queries.columns)):
        template = recipe.encoder.tokenization.side(side).template
        unknown = [field for field in re.findall(r"\{(\w+)\}", template) if field not in columns and field != "title"]
        if unknown:
            raise ValueError(
                f"encoder.tokenization.{side}.template is {template!r}, but a {side} of this collection has no field "
                f"{', '.join(unknown)}; fields: {', '.join(columns)}"
            )


def retrieve_bm25(recipe: Recipe, collection: Collection, outputs: dict[str, tuple[Path, int]]) -> None:
    """BM25's rankings as TREC runs, {split: (file, hits)}; the index is built once for each collection."""
    from pyserini_ance.pyserini_bridge.bm25 import Ranking, retrieve

    documents = collection.documents
    contents = ((documents.ids[row], "\n".join(filter(None, documents[row].values()))) for row in range(len(documents)))
    rankings = [Ranking(_id_and_text(collection.split(split).queries), hits, output) for split, (output, hits) in outputs.items()]
    retrieve(contents, rankings, recipe.bm25, recipe.cache / "bm25" / documents.digest, len(documents))


def _id_and_text(queries: Texts) -> list[tuple[str, str]]:
    return list(zip(queries.ids, queries.columns["text"], strict=True))


def _store(cache: Path, tokenizer: TextTokenizer, side: Side, texts: Texts, label: str) -> TokenStore:
    folder = cache / "tokens" / f"{texts.digest[:32]}-{tokenizer.key(side)[:32]}"
    vocabulary = len(tokenizer.tokenizer)
    return open_or_build(folder, texts, lambda records: tokenizer.ids(side, records), tokenizer.specials, vocabulary, label)
