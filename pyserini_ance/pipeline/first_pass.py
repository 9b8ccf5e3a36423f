"""The first pass of ANCE-PRF: queries are read together with the documents that a frozen encoder ranks first.

Source: Yu et al. 2021, arXiv:2108.13454; Pyserini searches so with `--prf-method ance-prf`. The ranking is of
all documents, by the encoder that training starts from. Judgments have no part in it, and it is made once,
before training: the documents and their index stay.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Collection, Split, Texts
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World, device_of
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import continue_encoder, load_encoder
from pyserini_ance.encoders.tokenization import SideTokenization, TextTokenizer
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.pipeline.bm25_rankings import contents
from pyserini_ance.pipeline.initial_weights import find_weights
from pyserini_ance.recipe.models import FirstPass, Recipe

log = logging.getLogger(__name__)


def first_pass_encoder(recipe: Recipe, saved: Path | None = None) -> Encoder:
    """The encoder that training starts from, which reads queries as the first pass does.

    saved: the folder that it was saved to, if it is not to be made anew.
    """
    assert recipe.first_pass is not None
    device = device_of(recipe.device)
    if saved:
        encoder = load_encoder(saved)
    elif start := next(iter(recipe.external_starts.values()), None):
        folder = find_weights(start).encoder
        encoder = continue_encoder(recipe.encoder, folder, start.allow_changes)  # raises what training would
    else:
        encoder = initial_encoder(recipe.encoder, recipe.seed)
    query = SideTokenization(**recipe.first_pass.model_dump(exclude={"words"}))
    settings = recipe.encoder.tokenization.model_copy(update={"query": query})
    # An encoder from elsewhere has the tokenizer of `encoder.model`: training checks it.
    own = {"tokenization": settings, "model": recipe.encoder.model}
    tokenizers = encoder.tokenizer.tokenizers
    tokenizer = TextTokenizer(tokenizers["query"], settings, tokenizers["document"])
    return Encoder(encoder.config.model_copy(update=own), encoder.towers, tokenizer, device)


def feedback(settings: FirstPass, documents: Texts) -> Iterator[tuple[str, str]]:
    """The id of each document, and the text that queries have of it."""
    for id, text in contents(documents):
        yield id, text.strip() if settings.words is None else " ".join(text.split()[: settings.words])


def with_first_documents(recipe: Recipe, encoder: Encoder, data: PreparedData) -> Collection:
    """The collection, in which each query has the contents of the documents that `encoder` ranks first as
    the fields `first_1`, `first_2`, ...

    data: the same collection, tokenized for the first pass. A query's own document (`ignore_identical_ids`)
    stays, as in Pyserini. One process encodes and searches, the others wait for what it stores.
    """
    assert recipe.first_pass is not None
    start, collection, splits = time.perf_counter(), data.collection, dict[str, Split]()
    fields = recipe.encoder.tokenization.query.first_documents[: len(collection.documents)]
    world = World(device=str(encoder.device))
    with Snapshot.without_run(encoder, data, recipe.exact_encoding, recipe.cache, world) as snapshot:
        for name, split in collection.splits.items():
            vectors = snapshot.encode_queries(name, np.arange(len(split.queries)), precision="fp32")
            ranked = snapshot.rank(vectors, snapshot.document_vectors, len(fields))[1]  # (Q, fields)
            rows = np.unique(ranked).tolist()
            found = feedback(recipe.first_pass, collection.documents.subset(rows))
            text_of = dict(zip(rows, (text for _, text in found), strict=True))
            columns = dict(split.queries.columns)
            for field, of_rank in zip(fields, ranked.T, strict=True):
                columns[field] = [text_of[row] for row in of_rank.tolist()]
            splits[name] = replace(split, queries=Texts(split.queries.ids, columns))
    log.info("first pass over %d documents: %.1f s", len(data.documents), time.perf_counter() - start)
    return replace(collection, splits=splits)
