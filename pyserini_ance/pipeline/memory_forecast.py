"""The memory of a recipe's training steps, before it runs and without its device: sizes of its encoder, which
`cpu_memory.py` reads too, and the forecast for a GPU."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

import torch
from torch import nn

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.encoders.batching import tokens_at_once
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.hardware import DTYPES, cpu_is_amd, cpu_prefers_eager_attention, resolve_precision
from pyserini_ance.encoders.inference_copy import copied_weights
from pyserini_ance.encoders.load_save import initial_encoder
from pyserini_ance.pipeline.preparation import encoder_record
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.provenance import library_bytes

log = logging.getLogger(__name__)
# Raise it whenever a family builds other towers, or passes are counted otherwise: sizes are recorded.
SIZES_VERSION = 7
GIB = 1 << 30
# The share of temporary tensors that stays empty between others. glibc (2.36) needs some bytes more than a
# tensor has, to align it, so that it can put a tensor where one of the same size was only if a neighbour is
# free too: one for two. Measured: 0.3 to 0.6 of a forward pass in training, 0.5 in encoding.
HOLES = 0.5


class EncoderSizes(NamedTuple):
    """Bytes of an encoder, as training holds it.

    weights: of all towers. dimension: the size of vectors. texts: by device and side, what a text and a batch
    of texts keep in a step (`TextMemory`); None where it cannot be counted.

    On a CPU also: tables, the embeddings whose gradients are kept from step to step (`row_gradients.py`);
    copied, weights of which the largest tower has a copy while it encodes; encoding, the most that a batch
    takes then; batches, by side, what one keeps in a step, and what it frees before (`BatchMemory`);
    libraries, resident when the encoder was built.
    """

    weights: int
    dimension: int
    texts: dict[str, dict[Side, list[int]] | None]
    tables: int = 0
    copied: int = 0
    encoding: int = 0
    batches: dict[Side, list[list[float]]] | None = None
    libraries: int | None = None


def encoder_sizes(recipe: Recipe) -> EncoderSizes:
    """Sizes of the encoder that the recipe starts from.

    They are recorded in the cache, because they depend on the code of the encoder's family: the encoder is
    built for them, which also makes all checks of its start.
    """
    untied = any(stage.trainable == "query_tower" for stage in recipe.stages.values())
    precisions = {device: _precision_on(device, recipe.precision) for device in devices(recipe)}
    encoding_in, budget = (
        resolve_precision(recipe.encoding.precision, "cpu"),
        recipe.encoding.tokens_per_batch,
    )
    machine = " AMD" * cpu_is_amd() + " eager" * cpu_prefers_eager_attention()
    subject = f"sizes{' untied' * untied} {precisions}, encoding {encoding_in} {budget}{machine}"
    record = encoder_record(recipe, subject, SIZES_VERSION)
    about = record.load()
    if about is None:
        encoder = initial_encoder(recipe.encoder, recipe.seed)
        libraries = library_bytes()
        texts = {device: _count(encoder, device, precision) for device, precision in precisions.items()}
        on_cpu = _count_on_cpu(encoder, precisions["cpu"], encoding_in, budget) if texts.get("cpu") else {}
        if untied:
            encoder.untie()
        about = {
            "weights": _bytes(encoder.towers.parameters()),
            "dimension": encoder.dimension,
            "texts": texts,
            "libraries": libraries,
            **on_cpu,
        }
        record.save(about)
    return EncoderSizes(**{name: about[name] for name in EncoderSizes._fields if name in about})


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _count_on_cpu(encoder: Encoder, training: str, precision: str, budget: int | None) -> dict[str, Any]:
    """The sizes that only a forecast for a CPU reads; encoding is in `precision`, of `budget` tokens."""
    from pyserini_ance.trainer.row_gradients import LEAST_ROWS
    from pyserini_ance.trainer.step_memory import BatchMemory

    towers = encoder.towers
    large = [m for m in towers.modules() if isinstance(m, nn.Embedding) and m.num_embeddings >= LEAST_ROWS]
    largest = [_largest_batch(encoder.length_tokens(side), budget) for side in SIDES]
    peaks = [
        encode_bytes(encoder, side, batch, precision) for side, batch in zip(SIDES, largest, strict=True)
    ]
    counted = {side: BatchMemory.count(towers, side, encoder.length_tokens(side), training) for side in SIDES}
    return {
        "tables": _bytes(embedding.weight for embedding in large),
        "copied": max(copied for copied, _ in peaks),
        "encoding": max(batch for _, batch in peaks),
        "batches": {side: [list(astuple(one)) for one in pair] for side, pair in counted.items()},
    }


def _largest_batch(length_tokens: int, budget: int | None) -> tuple[int, int]:
    return max(1, tokens_at_once(budget, "cpu") // length_tokens), length_tokens


def encode_bytes(encoder: Encoder, side: Side, batch: tuple[int, int], precision: str) -> tuple[int, int]:
    """Bytes of the copied weights, and of a batch (B, L) with `HOLES`, while it is encoded among others."""
    from pyserini_ance.trainer.step_memory import encoding_bytes

    tower, dtype = encoder.towers.tower(side), DTYPES[precision]
    weights = dict(tower.named_parameters())
    copied = sum(weights[name].numel() for name in copied_weights(tower, dtype)) * dtype.itemsize
    most, made = encoding_bytes(encoder, side, batch, dtype)
    return copied, most + round(HOLES * (made - most))


def _count(encoder: Encoder, device: str, precision: str) -> dict[Side, list[int]] | None:
    from pyserini_ance.trainer.step_memory import TextMemory

    try:
        counted = {
            side: TextMemory.count(encoder.towers, side, encoder.length_tokens(side), device, precision)
            for side in SIDES
        }
    except Exception as error:  # code of any model, which may need values
        log.debug("the memory of a step on %s cannot be counted: %s", device, error)
        return None
    return {side: list(astuple(memory)) for side, memory in counted.items()}


def devices(recipe: Recipe) -> list[str]:
    """The devices that the recipe may train on: both where `auto` finds no GPU, for plans made elsewhere."""
    if recipe.device != "auto":
        return [recipe.device]
    return ["cuda"] if torch.cuda.is_available() else ["cpu", "cuda"]


def _precision_on(device: str, precision: str) -> str:
    """The precision of training on a device; a GPU that is not there has bf16."""
    is_elsewhere = device == "cuda" and not torch.cuda.is_available()
    return "bf16" if precision == "auto" and is_elsewhere else resolve_precision(precision, device)


def step_memory(recipe: Recipe, data: PreparedData, sizes: EncoderSizes, device: str) -> str:
    """A line with the memory of the largest step of the recipe, on one process."""
    what = f"{'GPU memory' if device == 'cuda' else 'memory on a CPU'} per process: about"
    peaks = {
        name: (_state_bytes(stage, sizes), _activations(recipe, stage, data, sizes.texts[device], device))
        for name, stage in recipe.stages.items()
    }
    name = max(peaks, key=lambda name: sum(peaks[name]))
    state, activations = peaks[name]
    if sizes.texts[device] is None:
        return (
            f"{what} {state / GIB:.2f} GiB for weights, gradients and optimizer, in stage {name}; the "
            "activations of this encoder cannot be counted"
        )
    return (
        f"{what} {(state + activations) / GIB:.2f} GiB (weights, gradients and optimizer {state / GIB:.2f}, "
        f"activations {activations / GIB:.2f} in {_precision_on(device, recipe.precision)}), in stage {name} "
        "with texts of full length"
    )


def _state_bytes(stage: Stage, sizes: EncoderSizes) -> int:
    """Bytes of weights, and of gradients and two moments of those that train."""
    trained = sizes.weights // 2 if stage.trainable == "query_tower" else sizes.weights
    return sizes.weights + 3 * trained


def _activations(
    recipe: Recipe, stage: Stage, data: PreparedData, texts: Mapping[Side, Sequence[int]] | None, device: str
) -> int:
    """Bytes that a step keeps for its backward pass; 0 if unknown."""
    from pyserini_ance.trainer.step_memory import TextMemory, activation_bytes

    if texts is None:
        return 0
    return activation_bytes(
        stage,
        texts_per_query(stage, data),
        {side: recipe.encoder.tokenization.side(side).length_tokens for side in SIDES},
        {side: TextMemory(*texts[side]) for side in SIDES},
        recipe.encoding.training_tokens_per_batch,
        device,
    )


def texts_per_query(stage: Stage, data: PreparedData) -> dict[Side, int]:
    """The most texts that a query of a step brings along, by side."""
    from pyserini_ance.trainer.step_memory import texts_of_query

    most = data.anchor_sets["query"].known_positives.counts.max() if stage.positives == "all" else 1
    return texts_of_query(stage, int(most), data.passages.max_passages if data.passages else 1)
