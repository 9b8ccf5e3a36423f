"""The memory of a recipe's training steps, before it runs and without its device."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import NamedTuple

import torch

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.encoders.encoder import Encoder, resolve_precision
from pyserini_ance.encoders.load_save import initial_encoder
from pyserini_ance.pipeline.preparation import encoder_record
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.stage import Stage

log = logging.getLogger(__name__)
SIZES_VERSION = 2  # raise it whenever a family builds other towers: their sizes are recorded
GIB = 1 << 30


class EncoderSizes(NamedTuple):
    """The bytes of the weights that training holds in memory; the size of vectors; and, by device and side,
    what a text and a batch of texts keep in a step (`TextMemory`), None where it cannot be counted."""

    weights: int
    dimension: int
    texts: dict[str, dict[Side, list[int]] | None]


def encoder_sizes(recipe: Recipe) -> EncoderSizes:
    """Sizes of the encoder that the recipe starts from.

    They are recorded in the cache, because they depend on the code of the encoder's family: the encoder is
    built for them, which also makes all checks of its start.
    """
    untied = any(stage.trainable == "query_tower" for stage in recipe.stages.values())
    precisions = {device: _precision_on(device, recipe.precision) for device in devices(recipe)}
    subject = f"sizes{' untied' * untied} {precisions}"
    record = encoder_record(recipe, subject, SIZES_VERSION)
    about = record.load()
    if about is None:
        encoder = initial_encoder(recipe.encoder, recipe.seed)
        texts = {device: _count(encoder, device, precision) for device, precision in precisions.items()}
        if untied:
            encoder.untie()
        weights = sum(p.numel() * p.element_size() for p in encoder.towers.parameters())
        about = {"weights": weights, "dimension": encoder.dimension, "texts": texts}
        record.save(about)
    return EncoderSizes(about["weights"], about["dimension"], about["texts"])


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
    from pyserini_ance.trainer.step_memory import TextMemory, activation_bytes, texts_of_query

    if texts is None:
        return 0
    most = data.anchor_sets["query"].known_positives.counts.max() if stage.positives == "all" else 1
    passages = data.passages.max_passages if data.passages else 1
    return activation_bytes(
        stage,
        texts_of_query(stage, int(most), passages),
        {side: recipe.encoder.tokenization.side(side).length_tokens for side in SIDES},
        {side: TextMemory(*texts[side]) for side in SIDES},
        recipe.encoding.training_tokens_per_batch,
        device,
    )
