"""The memory that a process takes on a CPU for training, encoding and mining, stated before they begin.

What it holds already (libraries, token ids, an earlier stage's memory) is measured in this process; all else
is counted from shapes.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from pyserini_ance.data.collection import Side
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.batching import tokens_at_once, training_batches
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.hardware import Precision, cpu_has_fast_bf16, resolve_precision
from pyserini_ance.encoders.kept_memory import PRIMITIVE_BYTES, TRAINING_PRIMITIVES
from pyserini_ance.negatives.live import Live
from pyserini_ance.pipeline import memory_forecast
from pyserini_ance.pipeline.memory_forecast import (
    HOLES,
    EncoderSizes,
    encode_bytes,
    encoder_sizes,
    texts_per_query,
)
from pyserini_ance.recipe.models import Encoding, Recipe
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.provenance import bytes_with_libraries, resident_bytes
from pyserini_ance.vectors.faiss_index import FLAT
from pyserini_ance.vectors.sampled_search import (
    MAX_PENDING,
    MAX_PENDING_OF_ALL,
    held_bytes,
    may_hold,
    sampling_pays,
    sampling_stride,
)
from pyserini_ance.vectors.search import (
    NUMBERS_IN_CACHE,
    QUERIES_PER_BLOCK,
    SCORES_IN_CACHE,
    documents_within,
    resolve_backend,
)

log = logging.getLogger(__name__)
STEPS_DRAWN, TEXTS_DRAWN = 1000, 1 << 22  # at most, to find the largest step
CANDIDATE_BYTES = 8  # a row and a score


@dataclass(frozen=True)
class MemoryForecast:
    """Bytes that a process takes on a CPU at its peak, by what takes them.

    `files` are those of pages of mapped files: they count as the process's memory while the system has room,
    which can take them back.
    """

    parts: Mapping[str, int]
    files: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values()) + sum(self.files.values())

    def describe(self) -> str:
        """In GiB, the largest part first."""
        everything = {**self.parts, **self.files}
        least = memory_forecast.GIB / 200  # shown as 0.01
        shown = sorted(everything, key=lambda name: -everything[name])
        shown = [name for name in shown if everything[name] >= least]
        listed = ", ".join(f"{name} {everything[name] / memory_forecast.GIB:.2f}" for name in shown)
        files = [name for name in shown if name in self.files]
        mapped = f"; pages of files, which the system can take back: {', '.join(files)}" if files else ""
        return f"{self.total / memory_forecast.GIB:.2f} GiB ({listed}{mapped})"


def training_memory(
    recipe: Recipe, name: str, data: PreparedData, sizes: EncoderSizes, held: Mapping[str, int]
) -> MemoryForecast | None:
    """The forecast for a stage on one process on a CPU; None if the encoder cannot be counted.

    `held` are the bytes that the process holds before, by name.

    A step has weights, two moments, activations, and what of the gradients does not fit in the activations
    that the first batch of the backward pass has freed. glibc leaves holes between activations: see `HOLES`.
    Document vectors are mapped.
    """
    stage = recipe.stages[name]
    if sizes.batches is None:
        return None
    from pyserini_ance.trainer.onednn_linear import onednn_trains_linears

    weights, trained, tables = _trained(recipe, name, sizes)
    kept, freed, first = _largest_step(recipe, stage, data, sizes.batches)
    step = {"activations": kept, "holes": round(HOLES * freed), "gradients": max(0, trained - tables - first)}
    refresh, files = _refresh(recipe, stage, data, sizes)
    parts = {**held, "weights": weights, "moments": 2 * trained}
    largest = max((step, refresh), key=lambda phase: sum(phase.values()))
    parts |= largest
    parts["documents in bf16"] = live_search_bytes(
        recipe.encoding, stage, len(data.documents), sizes.dimension
    )
    parts["gradients"] = parts.get("gradients", 0) + tables
    if resolve_precision(recipe.precision, "cpu") == "bf16" or onednn_trains_linears():
        parts["oneDNN primitives"] = TRAINING_PRIMITIVES * PRIMITIVE_BYTES
    return MemoryForecast(parts, files)


def _trained(recipe: Recipe, name: str, sizes: EncoderSizes) -> tuple[int, int, int]:
    """Bytes of a stage's weights, of those that train, and of the embeddings among these.

    Sizes are those of two towers if any stage trains the query tower alone, which unties them.
    """
    stages = list(recipe.stages)
    unties = [recipe.stages[stage].trainable == "query_tower" for stage in stages]
    tied, alone = recipe.encoder.tied, recipe.stages[name].trainable == "query_tower"
    is_one = tied and any(unties) and not any(unties[: stages.index(name) + 1])
    weights = sizes.weights // 2 if is_one else sizes.weights
    return (
        weights,
        weights // 2 if alone else weights,
        sizes.tables // 2 if alone and not tied else sizes.tables,
    )


def _largest_step(
    recipe: Recipe, stage: Stage, data: PreparedData, batches: Mapping[Side, Sequence[Sequence[float]]]
) -> tuple[int, int, int]:
    """Bytes that the largest step keeps, that it frees in its forward pass, and that its last batch keeps.

    See `BatchEncoder`, which cuts steps into chunks.
    """
    from pyserini_ance.trainer.step import tokens_per_chunk
    from pyserini_ance.trainer.step_memory import BatchMemory

    setting = recipe.encoding.training_tokens_per_batch
    coupled = any(term.in_batch_negatives for term in stage.terms.values())
    queries, is_cut = stage.batch_queries, stage.chunk_queries is not None
    if stage.chunk_queries:
        queries = min(queries, stage.chunk_queries)
    sizes: list[tuple[int, int]] = []  # of each batch: kept, freed
    tokens = 0
    for side, lengths in _longest_texts(recipe, stage, data, queries).items():
        memory = [BatchMemory(*numbers) for numbers in batches[side]]
        for batch in training_batches(lengths, setting, "cpu"):
            longest = int(lengths[batch[0]])
            sizes.append((memory[0].of(len(batch), longest), memory[1].of(len(batch), longest)))
            tokens += len(batch) * longest
    if coupled and is_cut:  # GradCache: a batch at a time
        return (*max(sizes), max(sizes)[0])
    kept, freed = map(sum, zip(*sizes, strict=True))
    if not coupled and not is_cut:
        chunks = math.ceil(tokens / tokens_per_chunk(setting))
        share = math.ceil(queries / chunks) / queries
        kept, freed = round(share * kept), round(share * freed)
    return kept, freed, min(kept, sizes[-1][0])


def _longest_texts(recipe: Recipe, stage: Stage, data: PreparedData, queries: int) -> dict[Side, np.ndarray]:
    """The lengths of the texts, by side, of the longest among the stage's steps (at most `STEPS_DRAWN`).

    The texts of a step are drawn ahead; those that depend on negatives still to be mined, and those of a
    chunk, are drawn at random instead.
    """
    texts, rng = texts_per_query(stage, data), np.random.default_rng(0)
    stores = {"query": data.queries[data.train_split], "document": data.documents}
    lengths = {
        side: stores[side].lengths(recipe.encoder.tokenization.side(side).length_tokens) for side in texts
    }
    draws = max(1, min(stage.steps, STEPS_DRAWN, TEXTS_DRAWN // (queries * sum(texts.values()))))
    sources = (*stage.sources, *stage.components)
    is_known = not stage.teachers and not any(source.is_mined or source.live for source in sources)
    if is_known and queries == stage.batch_queries:
        steps = [_texts_of_step(recipe, stage, data, step) for step in range(draws)]
    else:
        steps = [
            {side: rng.integers(0, len(lengths[side]), queries * count) for side, count in texts.items()}
            for _ in range(draws)
        ]
    drawn = [{side: lengths[side][rows[side]] for side in texts} for rows in steps]
    return max(drawn, key=lambda step: sum(int(of_side.sum()) for of_side in step.values()))


def _texts_of_step(recipe: Recipe, stage: Stage, data: PreparedData, step: int) -> dict[Side, np.ndarray]:
    """The rows of the texts that a step encodes, by side."""
    from pyserini_ance.trainer.batch import plan_batch

    number = list(recipe.stages.values()).index(stage)
    splits = data.split_rows if recipe.train_split.sampling == "equal" else ()
    batch = plan_batch(stage, number, step, recipe.seed, data.anchor_sets, {}, splits)
    return {"query": batch.unique("query"), "document": data.training_rows_of(batch.unique("document"))[0]}


def _refresh(
    recipe: Recipe, stage: Stage, data: PreparedData, sizes: EncoderSizes
) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of a refresh or an evaluation by the training process, and of the files that stay mapped."""
    settings, product = recipe.encoding, stage.effective_evaluate
    mined = [source for source in stage.sources if source.is_mined]
    mines = bool(mined) and stage.effective_refresh.mode == "sync"
    evaluates = product is not None and product.mode == "sync"
    frozen = stage.trainable == "query_tower"
    if not (mines or evaluates or frozen):
        return {}, {}
    documents, dimension = len(data.documents), sizes.dimension
    sample = product.sample_documents if product else None
    parts = {"copied weights": sizes.copied, "batch": sizes.encoding}
    if sample and not (mines or frozen):
        parts["vectors"] = 8 * min(sample, documents) * dimension
        return parts, {"checkpoint": sizes.weights}
    if mines:
        queries, width = len(data.split.queries), sum(source.max_candidates(0) for source in mined)
        parts["query vectors"] = 8 * queries * dimension  # twice, while processes gather them
        parts["candidates"] = 2 * CANDIDATE_BYTES * queries * width  # found, and kept
        parts["search"] = search_bytes(settings, documents, dimension, queries, width)
    tokens = data.documents.ids.nbytes + data.documents.offsets.nbytes
    mapped = mapped_bytes(settings, documents, dimension)
    return parts, {"vectors": mapped, "tokens": tokens, "checkpoint": sizes.weights}


def mapped_bytes(settings: Encoding, documents: int, dimension: int) -> int:
    """Bytes of the mapped vectors of which a search leaves the pages in memory."""
    if settings.memory_gib:
        library = resolve_backend(settings.search, "cpu")
        documents = min(documents, documents_within(settings.memory_gib, dimension, library))
    return 4 * documents * dimension


def search_bytes(settings: Encoding, documents: int, dimension: int, queries: int, k: int) -> int:
    """Bytes of an exact search, without the vectors of both sides and its results.

    Faiss reads mapped vectors where they are, and keeps the hits of a block of queries: scores, rows of 8
    bytes, and once more in order. A search in bf16 has a sample of the documents and its scores in bf16, and
    candidates. torch copies a block of documents, and has three times the scores of a part of it, when it
    selects the best of the first.
    """
    block = min(queries, QUERIES_PER_BLOCK)
    if resolve_backend(settings.search, "cpu") == "torch":
        return 4 * dimension * min(documents, settings.documents_per_block) + 3 * 4 * SCORES_IN_CACHE
    if _may_sample(settings) and sampling_pays(queries, documents, dimension, k, is_held=False):
        sample = documents // sampling_stride(documents, k)
        candidates = min(MAX_PENDING * queries, MAX_PENDING_OF_ALL * block)
        pending = candidates * 3 * 4  # query, row, score
        return sample * 2 * (dimension + block) + 4 * 2 * NUMBERS_IN_CACHE + pending
    return block * (k + 1) * 2 * (4 + 8)


def live_search_bytes(settings: Encoding, stage: Stage, documents: int, dimension: int) -> int:
    """Bytes that the searches of a stage's steps hold, next to the vectors: see `CentredDocuments`."""
    depths = [each.top_k for each in stage.sources if isinstance(each, Live) and each.index == FLAT]
    pays = any(sampling_pays(stage.batch_queries, documents, dimension, k, is_held=True) for k in depths)
    holds = pays and _may_sample(settings) and may_hold(documents, dimension)
    return held_bytes(documents, dimension) if holds else 0


def _may_sample(settings: Encoding) -> bool:
    """Whether searches on this processor are in bf16, if it pays: see `searcher`."""
    is_free = settings.search == "auto" and not settings.memory_gib
    return is_free and cpu_has_fast_bf16() and resolve_backend(settings.search, "cpu") == "faiss"


def searching_memory(
    settings: Encoding, documents: int, dimension: int, queries: int, k: int
) -> MemoryForecast | None:
    """The forecast for an exact search over mapped vectors, from now on; the queries are here already."""
    if (now := resident_bytes()) is None:
        return None
    parts = {
        "so far": now,
        "hits": CANDIDATE_BYTES * queries * k,
        "search": search_bytes(settings, documents, dimension, queries, k),
    }
    return MemoryForecast(parts, {"vectors": mapped_bytes(settings, documents, dimension)})


def encoding_memory(
    encoder: Encoder, tokens: TokenStore, side: Side, precision: Precision, tokens_per_batch: int | None
) -> MemoryForecast | None:
    """The forecast for encoding all texts of `tokens`, and reading their vectors, from now on.

    The weights are mapped from their files, which are read as the first batch needs them. None where memory
    cannot be measured, on a GPU, and for an encoder whose passes cannot be counted.
    """
    if (now := bytes_with_libraries()) is None or encoder.device.type != "cpu" or not len(tokens):
        return None
    longest = int(tokens.lengths(encoder.length_tokens(side)).max())
    texts = min(len(tokens), max(1, tokens_at_once(tokens_per_batch, "cpu") // longest))
    try:
        copied, batch = encode_bytes(encoder, side, (texts, longest), precision)
    except Exception as error:  # code of any model, which may need values
        log.debug("the memory of a batch cannot be counted: %s", error)
        return None
    weights = sum(p.numel() * p.element_size() for p in encoder.towers.tower(side).parameters())
    parts = {"so far": now, "copied weights": copied, "batch": batch}
    return MemoryForecast(parts, {"weights": weights, "vectors": 4 * len(tokens) * encoder.dimension})


def stage_lines(recipe: Recipe, data: PreparedData, sizes: EncoderSizes) -> list[str]:
    """A line for each stage with the memory of a process on a CPU."""
    if sizes.libraries is None:
        return []
    held = {"libraries": sizes.libraries}
    forecasts = {name: training_memory(recipe, name, data, sizes, held) for name in recipe.stages}
    return [
        f"memory on a CPU per process, stage {name}: about {forecast.describe()}"
        for name, forecast in forecasts.items()
        if forecast is not None
    ]


@contextmanager
def stating_memory(recipe: Recipe, name: str, data: PreparedData, world: World) -> Iterator[int]:
    """Log the forecast of a stage when it begins, and the measured peak when it ends; yields the forecast.

    For one process on a CPU; 0 elsewhere.
    """
    forecast = None
    if world.size == 1 and world.device == "cpu" and (now := bytes_with_libraries()) is not None:
        forecast = training_memory(recipe, name, data, encoder_sizes(recipe), {"so far": now})
    if forecast is None:
        yield 0
        return
    log.info("stage %s: takes about %s", name, forecast.describe())
    yield forecast.total
    log_peak(f"stage {name}", forecast)


def log_peak(what: str, forecast: MemoryForecast) -> None:
    """Log the measured peak of this process next to its forecast."""
    gib = memory_forecast.GIB
    peak, stated = (resident_bytes("VmHWM") or 0) / gib, forecast.total / gib
    log.info("%s: took at most %.2f GiB; the forecast was %.2f", what, peak, stated)
