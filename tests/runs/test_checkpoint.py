import copy
from types import SimpleNamespace

import pytest
import torch

from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.recipe.stage import Optimizer
from pyserini_ance.runs.checkpoint import (
    TRAINING,
    Checkpoint,
    TrainingProgress,
    drop_moments,
    moments_of,
    newest_progress,
    publish_checkpoint,
    restore_moments,
)
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import MANIFEST
from pyserini_ance.trainer.optim import build_optimizer

LENGTHS = {"document": {"length_tokens": 32}}


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return initial_encoder(EncoderConfig(model=str(tiny_bert), tokenization=LENGTHS), 0)


@pytest.fixture
def run(tmp_path) -> RunDir:
    return RunDir(tmp_path)


def optimizer_of(encoder, kind: str = "adamw") -> torch.optim.Optimizer:
    return build_optimizer(encoder.towers, Optimizer(kind=kind, learning_rate=1e-3))


def walk(encoder, optimizer, steps: int, seed: int) -> None:
    """Steps along random gradients; the pooler gets none, as in real training."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for name, parameter in encoder.towers.named_parameters():
            parameter.grad = None if ".pooler." in name else torch.randn(parameter.shape, generator=generator)
        optimizer.step()


def weights(encoder) -> list[torch.Tensor]:
    return [p.detach().clone() for p in encoder.towers.parameters()]


@pytest.mark.parametrize("kind", ["adamw", "adamw_8bit", "lamb"])
def test_weights_and_moments_come_back_bitwise(tiny_bert, run, kind, monkeypatch):
    """A step that is not compiled does the same, but slowly."""
    if kind == "adamw_8bit":
        pytest.importorskip("torchao", reason="pip install 'pyserini_ance[torchao]'")
        monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    encoder = initial_encoder(EncoderConfig(model=str(tiny_bert), projection=256, tokenization=LENGTHS), 0)
    optimizer = optimizer_of(encoder, kind)
    walk(encoder, optimizer, 3, seed=0)
    checkpoint = publish_checkpoint(run, encoder, moments_of(optimizer), TrainingProgress("a", 3))
    walk(encoder, optimizer, 2, seed=1)
    small = {name for name, moment in moments_of(optimizer).items() if moment.dtype == torch.uint8}
    assert {name.split(".")[1] for name in small} == ({"exp_avg", "exp_avg_sq"} if "8" in kind else set())
    again = load_encoder(checkpoint.encoder)
    restored = optimizer_of(again, kind)
    restore_moments(Checkpoint.open(run.checkpoint("a", 3)), restored)
    walk(again, restored, 2, seed=1)
    assert all(map(torch.equal, weights(encoder), weights(again)))


def test_a_finished_stage_keeps_weights_alone(encoder, run):
    optimizer = optimizer_of(encoder)
    walk(encoder, optimizer, 1, seed=0)
    progress = [TrainingProgress(stage, 1) for stage in ("a", "a-b")]
    before = [publish_checkpoint(run, encoder, moments_of(optimizer), one).weights for one in progress]
    recipe = SimpleNamespace(stages={"c": SimpleNamespace(keep_optimizer=True)}, start_of={"c": "a-b"}.get)
    drop_moments(run, recipe, ["a", "a-b"])
    after = [Checkpoint.open(run.checkpoint(stage, 1)) for stage in ("a", "a-b")]
    assert [checkpoint.weights for checkpoint in after] == before
    assert [(checkpoint.folder / TRAINING).exists() for checkpoint in after] == [False, True]
    assert newest_progress(run, "a") is None and newest_progress(run, "a-b").step == 1
    (after[1].folder / TRAINING).write_bytes(b"")  # weights alone are read while moments are dropped
    assert Checkpoint.open(after[1].folder) == after[1]
    with pytest.raises(RuntimeError, match=f"{TRAINING} is not what .*manifest.json says was written"):
        restore_moments(after[1], optimizer)


def test_a_complete_checkpoint_is_opened_and_not_rewritten(encoder, run):
    given = run, encoder, moments_of(optimizer_of(encoder)), TrainingProgress("a", 1)
    first = publish_checkpoint(*given)
    written = (first.folder / MANIFEST).stat().st_mtime_ns
    assert publish_checkpoint(*given) == first
    assert (first.folder / MANIFEST).stat().st_mtime_ns == written


def test_newest_progress_is_the_last_complete_one_of_its_stage(encoder, run):
    assert newest_progress(run, "a") is None
    optimizer = optimizer_of(encoder)
    steps = [("a", 2), ("a", 10, 2, 0.25), ("a", 30), ("a-b", 40)]
    saved = [TrainingProgress(*of) for of in steps]
    for progress in saved:
        publish_checkpoint(run, encoder, moments_of(optimizer), progress)
    (run.checkpoint("a", 30) / MANIFEST).unlink()  # as a killed process leaves it
    publish_checkpoint(run, encoder, None, TrainingProgress("a", 20))  # nothing to resume from
    assert newest_progress(run, "a") == saved[1]
    assert newest_progress(run, "a-b") == saved[3] and newest_progress(run, "b") is None


def test_the_hash_covers_a_projection(tiny_bert, run):
    settings = EncoderConfig(model=str(tiny_bert), projection=4, tokenization=LENGTHS)
    encoder, made = initial_encoder(settings, 0), []
    for step in range(2):
        made.append(publish_checkpoint(run, encoder, None, TrainingProgress("a", step)))
        encoder.towers.queries.layers[2].linear.bias.data.add_(1)
    assert made[0].weights != made[1].weights


def test_hashes_of_a_pair_change_with_their_towers(encoder, run):
    pair = copy.deepcopy(encoder)
    tied = publish_checkpoint(run, pair, None, TrainingProgress("a", 0))
    pair.untie()
    equal = publish_checkpoint(run, pair, None, TrainingProgress("a", 1))
    assert equal.hashes == tied.hashes == (tied.weights, tied.weights) and equal.weights == tied.weights
    with torch.no_grad():
        next(pair.towers.queries.parameters()).add_(1)
    moved = publish_checkpoint(run, pair, None, TrainingProgress("a", 2))
    assert moved.document_weights == tied.document_weights
    assert len({moved.weights, moved.query_weights, tied.weights}) == 3
    assert Checkpoint.open(moved.folder) == moved
