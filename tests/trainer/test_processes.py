"""Twenty steps on two processes, or in chunks, against the same steps on one process in one go."""

import copy
from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest
import torch
from helpers.step_gradients import compute_gradients

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.towers import TwoTower
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.trainer.batch import plan_batch
from pyserini_ance.trainer.optim import build_optimizer, learning_rate
from pyserini_ance.trainer.step import BatchEncoder

OWN = {"negatives": [{"kind": "random", "num_negatives": 2}], "loss": {"kind": "nll", "scale": 1.0}}
STEP = {"in_batch_negatives": True, "negatives": [{"kind": "random"}], "loss": {"kind": "nll", "scale": 1.25}}
TERMS = {"own": {**OWN, "num_hardest": 1}, "step": {**STEP, "num_hardest": 3, "weight": 0.5}}


@dataclass
class Trained:
    """`gradients` are those of each step before clipping, all processes together."""

    start: dict[str, torch.Tensor]
    losses: list[dict[str, float]] = field(default_factory=list)
    gradients: list[dict[str, torch.Tensor]] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)


def encoder_of(recipe, tied: bool):
    """With a third of tiny_bert's weights: at full size, 20 steps grow a rounding error thirtyfold."""
    encoder = initial_encoder(recipe.encoder, 0)
    with torch.no_grad():
        for p in encoder.towers.parameters():
            p *= 0.35 if p.ndim > 1 else 1.0
    if not tied:
        other, generator = copy.deepcopy(encoder.towers.queries), torch.Generator().manual_seed(1)
        with torch.no_grad():
            for p in other.parameters():
                p += 0.05 * torch.randn(p.shape, generator=generator)
        encoder.towers = TwoTower(encoder.towers.queries, other)
    encoder.towers.train()
    return encoder


def train(world, recipe, tied: bool, kind: str) -> Trained:
    """What the trainer does, with AdamW or SGD."""
    stage, data = recipe.stages["a"], tokenize(recipe, read_collection(recipe))
    encoder = encoder_of(recipe, tied)
    tokens = recipe.encoding.tokens_per_batch
    runner = BatchEncoder(stage, data, encoder, nullcontext, tokens, (recipe.seed, 0), world)
    parameters = dict(encoder.towers.named_parameters())
    optimizer = (
        build_optimizer(encoder.towers, stage.optimizer)
        if kind == "adamw"
        else torch.optim.SGD(parameters.values())
    )
    result = Trained({name: p.detach().clone() for name, p in parameters.items()})
    for step in range(stage.steps):
        batch = plan_batch(stage, 0, step, recipe.seed, data.anchor_sets, {})
        result.losses.append(compute_gradients(runner, batch, step))
        result.gradients.append(
            {name: p.grad.clone() for name, p in parameters.items() if p.grad is not None}
        )
        torch.nn.utils.clip_grad_norm_(parameters.values(), stage.optimizer.max_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(stage, step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    result.weights = {name: p.detach() for name, p in parameters.items()}
    return result


@pytest.fixture(scope="module")
def recipe_of(small_recipe):
    """A recipe of 8 queries a step; `rate` is the learning rate."""

    def make(rate: float, dropout: float = 0.0, steps: int = 20, chunk_queries=None, tokens: int = 1024):
        stage = {
            "steps": steps,
            "batch_queries": 8,
            "positives": "all",
            "terms": TERMS,
            "optimizer": {"learning_rate": rate, "max_grad_norm": 1.0},
            "lr_schedule": {"warmup_steps": 2},
        }
        encoding = {"precision": "fp32", "tokens_per_batch": tokens}
        recipe = small_recipe({"a": {**stage, "chunk_queries": chunk_queries}}, encoding=encoding)
        encoder = recipe.encoder.model_copy(update={"dropout": dropout, "normalize": True})
        return recipe.model_copy(update={"encoder": encoder})

    return make


def distances(found: Trained, expected: Trained, without: tuple[str, ...] = ()) -> tuple[float, float, float]:
    """The largest difference of a loss, relative to it; of a parameter's gradients of all steps (norm),
    relative to the norm of all parameters' together; of a weight."""
    pairs = [
        (one[name], value)
        for one, losses in zip(found.losses, expected.losses, strict=True)
        for name, value in losses.items()
    ]
    assert all(
        ours.keys() == theirs.keys() for ours, theirs in zip(found.gradients, expected.gradients, strict=True)
    )
    ours, theirs = (
        {name: torch.stack([g[name] for g in one.gradients]) for name in one.gradients[0]}
        for one in (found, expected)
    )
    size = torch.stack([g.norm() for g in theirs.values()]).norm()
    gradient = max(float((ours[name] - g).norm() / size) for name, g in theirs.items())
    weights = [
        (found.weights[name] - w).abs().max()
        for name, w in expected.weights.items()
        if not (without and name.endswith(without))
    ]
    return max(abs(a - b) / b for a, b in pairs), gradient, float(max(weights))


def assert_equal_up_to_rounding(found: Trained, expected: Trained, without: tuple[str, ...] = ()) -> None:
    loss, gradient, weight = distances(found, expected, without)
    assert loss <= 1e-6 and gradient <= 1e-6 and weight <= 1e-5


def train_each(world, recipes: list, *settings) -> list[Trained]:
    return [train(world, recipe, *settings) for recipe in recipes]


@pytest.mark.parametrize(
    ("kind", "tied", "rate", "without"),
    [
        # At 0.1, 20 steps grow the rounding errors of the token type's gradient, summed over all tokens.
        ("sgd", False, 0.05, ()),
        # The bias of attention keys adds the same to all logits of a query: its true gradient is 0, and Adam,
        # which divides a gradient by its size, turns the rounding errors there into steps of full length.
        ("adamw", True, 1e-3, ("attention.self.key.bias",)),
    ],
)
def test_twenty_steps_on_two_processes_and_in_four_chunks(
    run_processes, recipe_of, kind, tied, rate, without
):
    whole, chunks = recipe_of(rate), recipe_of(rate, chunk_queries=2)
    expected, chunked = train_each(World(), [whole, chunks], tied, kind)
    moved = max((weight - expected.start[name]).abs().max() for name, weight in expected.weights.items())
    assert moved > 1e-3  # a hundred times the tolerance
    assert_equal_up_to_rounding(chunked, expected, without)
    first, second = run_processes(2, train, whole, tied, kind)
    assert_equal_up_to_rounding(first, expected, without)
    assert second.losses == first.losses
    assert all(torch.equal(weight, second.weights[name]) for name, weight in first.weights.items())


def test_dropout_is_repeatable_and_gradcache_repeats_it(run_processes, recipe_of):
    """GradCache's chunks hold the whole batch, so that both ways encode the same texts together."""
    plain, cached = (recipe_of(0.1, dropout=0.3, steps=3, chunk_queries=c, tokens=64) for c in (None, 8))
    first, again, found = run_processes(2, train_each, [plain, plain, cached], False, "sgd")[0]
    assert first.losses == again.losses
    assert all(torch.equal(weight, again.weights[name]) for name, weight in first.weights.items())
    assert found.losses[0] == first.losses[0]
    assert_equal_up_to_rounding(found, first)
    still = train(World(), recipe_of(0.1, steps=3), False, "sgd")
    assert distances(found, still)[1] > 0.01
