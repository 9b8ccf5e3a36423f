"""The start's own ranking: BM25 and the untrained encoder, fused, before anything is trained."""

import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from pyserini_ance.adapt.documents import Passage
from pyserini_ance.data.trec import Run, best_first, read_run
from pyserini_ance.distributed.process_group import device_of
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.hardware import resolve_precision
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.pipeline.bm25_rankings import bm25_index, contents
from pyserini_ance.pipeline.mining import load_collection
from pyserini_ance.pyserini_bridge.bm25 import Bm25Job, retrieve
from pyserini_ance.pyserini_bridge.searchers import fuse
from pyserini_ance.recipe.models import Bm25, Recipe
from pyserini_ance.storage.progress import progress_bar
from pyserini_ance.vectors.search import exact_search

POOL = 100  # hits of each ranking
BLOCK = 512  # documents


class StartRanker:
    """Ranks the documents of a folder in BEIR's layout, which are encoded at the first call, by a recipe's
    settings.

    Source of the fusion: `pyserini.fusion --method normalize`, as in the row `hybrid`.
    """

    def __init__(self, folder: Path, recipe: Recipe):
        settings = {"kind": "beir", "folder": str(folder), "splits": {}}
        self.collection, self.recipe = load_collection(settings, recipe.cache), recipe
        if recipe.threads:
            torch.set_num_threads(recipe.threads)

    def passages(self) -> Iterator[Passage]:
        documents = self.collection.documents
        return (Passage(id, **documents[row]) for row, id in enumerate(documents.ids))

    @cached_property
    def encoder(self) -> Encoder:
        return initial_encoder(self.recipe.encoder, self.recipe.seed, device_of(self.recipe.device))

    @cached_property
    def _vectors(self) -> np.ndarray:
        precision = resolve_precision(self.recipe.encoding.precision, str(self.encoder.device))
        blocks = self.collection.documents.blocks(BLOCK)
        total = -(-len(self.collection.documents) // BLOCK)
        bar = progress_bar(iterable=blocks, total=total, desc="encode documents", unit="block")
        return np.concatenate([self.encoder.encode(block, "document", precision) for block in bar])

    def rankings(self, queries: Mapping[str, str]) -> tuple[Run, Run]:
        """The first POOL documents of each query (text by id), by BM25 and by the encoder."""
        ids = self.collection.documents.ids
        with tempfile.TemporaryDirectory(prefix="pyserini_ance.") as folder:
            settings, output = self.recipe.bm25 or Bm25(), Path(folder, "bm25.trec")
            index = bm25_index(settings, self.recipe.cache, self.collection)
            job = Bm25Job(list(queries.items()), POOL, output)
            retrieve(contents(self.collection.documents), [job], settings, index, len(ids))
            bm25 = read_run(output) if output.stat().st_size else {}
        vectors = self.encoder.encode(list(queries.values()), side="query")
        scores, rows = exact_search(
            vectors, self._vectors, min(POOL, len(ids)), device=str(self.encoder.device)
        )
        dense = {
            query: {ids[row]: score for row, score in zip(of_query, found, strict=True)}
            for query, of_query, found in zip(queries, rows.tolist(), scores.tolist(), strict=True)
        }
        return bm25, dense

    def first(self, texts: list[str], k: int) -> list[list[str]]:
        """The ids of the first `k` documents of each text, fused."""
        bm25, dense = self.rankings({str(number): text for number, text in enumerate(texts)})
        fused = fuse([bm25, dense], "normalize", pool=POOL, hits=k)
        return [list(fused.get(str(number), ())) for number in range(len(texts))]

    def pseudo_judgments(self, queries: Mapping[str, str]) -> tuple[dict[str, str], int]:
        """The fused first document of each query, and for how many BM25 and the encoder put it first both."""
        bm25, dense = self.rankings(queries)
        fused = fuse([bm25, dense], "normalize", pool=POOL, hits=1)
        firsts = {query: next(iter(found)) for query, found in fused.items()}
        agreed = sum(first_document(bm25, query) == first_document(dense, query) for query in firsts)
        return firsts, agreed


def first_document(ranking: Run, query: str) -> str | None:
    """The first document of a query; None without hits."""
    return next(iter(best_first(ranking.get(query, {}))), None)
