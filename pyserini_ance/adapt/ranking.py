"""The start's own ranking: BM25 and the untrained encoder, fused, before anything is trained."""

import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import torch

from pyserini_ance.adapt.documents import Passage
from pyserini_ance.data.trec import Run, best_first, read_run, without_own
from pyserini_ance.distributed.world import World, device_of
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import save_encoder
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.pipeline.bm25_rankings import bm25_index, contents
from pyserini_ance.pipeline.mining import load_collection
from pyserini_ance.pipeline.preparation import tokenize_for
from pyserini_ance.pyserini_bridge.bm25 import Bm25Job, retrieve
from pyserini_ance.pyserini_bridge.searchers import fuse
from pyserini_ance.recipe.models import Bm25, Recipe
from pyserini_ance.runs.checkpoint import document_weights_of

POOL = 100  # hits of each ranking


class StartRanker:
    """Ranks the documents of a folder in BEIR's layout by a recipe's settings. They are encoded at the first
    call, into `scratch`, where the recipe's run finds the vectors.

    Source of the fusion: `pyserini.fusion --method normalize`, as in the row `hybrid`.
    """

    def __init__(self, folder: Path, recipe: Recipe, scratch: Path):
        settings = {"kind": "beir", "folder": str(folder), "splits": {}}
        self.collection, self.recipe = load_collection(settings, cache=recipe.cache), recipe
        self.scratch = scratch
        if recipe.threads:
            torch.set_num_threads(recipe.threads)

    def passages(self) -> Iterator[Passage]:
        documents = self.collection.documents
        return (Passage(id, **documents[row]) for row, id in enumerate(documents.ids))

    @cached_property
    def start(self) -> Snapshot:
        """The documents as the untrained encoder sees them, as in the first mining of a run."""
        recipe, world = self.recipe, World(device=device_of(self.recipe.device))
        encoder = initial_encoder(recipe.encoder, recipe.seed, world.device)
        with tempfile.TemporaryDirectory(prefix="pyserini_ance.") as folder:
            save_encoder(encoder, Path(folder))
            weights = str(document_weights_of(Path(folder)))
        data = tokenize_for(recipe.encoder, recipe.cache, (), self.collection)
        start = Snapshot(Path(), weights, data, recipe.encoding, self.scratch, world.device, world)
        start.encoder = encoder  # which has no folder any more
        return start

    def rankings(self, queries: Mapping[str, str]) -> tuple[Run, Run]:
        """The first POOL documents of each query (text by id), by BM25 and by the encoder."""
        ids = self.collection.documents.ids
        with tempfile.TemporaryDirectory(prefix="pyserini_ance.") as folder:
            settings, output = self.recipe.bm25 or Bm25(), Path(folder, "bm25.trec")
            index = bm25_index(settings, self.recipe.cache, self.collection)
            job = Bm25Job(list(queries.items()), POOL, output)
            retrieve(contents(self.collection.documents), [job], settings, index, len(ids))
            bm25 = read_run(output)
        vectors, documents = self.start.encoder.encode(list(queries.values())), self.start.document_vectors
        scores, rows = self.start.rank(vectors, documents, min(POOL, len(ids)), self.start.passages)
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
        if self.recipe.data.ignore_identical_ids:
            bm25, dense = without_own(bm25), without_own(dense)
        fused = fuse([bm25, dense], "normalize", pool=POOL, hits=1)
        firsts = {query: next(iter(found)) for query, found in fused.items()}
        return firsts, sum(first_document(bm25, query) == first_document(dense, query) for query in firsts)


def first_document(ranking: Run, query: str) -> str | None:
    """The first document of a query; None without hits."""
    return next(iter(best_first(ranking.get(query, {}))), None)
