"""Weights in parts on two processes: those of a whole model, and checkpoints that either goes on with."""

import shutil
from pathlib import Path

import pytest
import torch
from helpers.stage_fixture import MIXED
from helpers.stages import BATCH, OWN, make_stage
from safetensors.torch import load_file
from torch.distributed.tensor import DTensor
from transformers import AutoTokenizer, T5Config, T5EncoderModel

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.checkpoint import TRAINING, Checkpoint, TrainingProgress, publish_checkpoint
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer import sharding
from pyserini_ance.trainer.executors import SyncExecutor
from pyserini_ance.trainer.trainer import StageTrainer

LAMB = {"kind": "lamb", "learning_rate": 1e-2}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}

Weights = dict[str, torch.Tensor]
Shapes = dict[str, tuple[tuple[int, ...], tuple[int, ...]]]


def trained(world: World, recipe, folder: Path, resume: bool = False) -> tuple[Weights, Shapes]:
    """What the last checkpoint holds, and of the weights in parts their shapes: whole, and on this process.

    Weights in parts train unless the stage has adapters.
    """
    run, data = RunDir(folder), tokenize(recipe, read_collection(recipe))
    encoder, progress = initial_encoder(recipe.encoder, 0), TrainingProgress("initial", 0)
    hashes = world.on_main(lambda: publish_checkpoint(run, encoder, None, progress).hashes)
    start = Checkpoint(run.checkpoint("initial", 0), *hashes)
    executor = SyncExecutor(Refresher(recipe, data, run, world).make)
    stage = StageTrainer(recipe, "a", data, run, world, lambda product: executor, start, resume)
    weights = dict(stage.encoder.towers.named_parameters())
    parts = {name: each for name, each in weights.items() if isinstance(each, DTensor)}
    train = {name for name, each in weights.items() if each.requires_grad}
    is_adapted = recipe.stages["a"].lora is not None
    assert not parts or (not train & parts.keys() if is_adapted else train == parts.keys())
    result = stage.train()
    world.barrier()
    files = [*sorted(result.encoder.rglob("*.safetensors")), result.folder / TRAINING]
    held = {f"{file.name}/{name}": each for file in files for name, each in load_file(file).items()}
    for name in [name for name in held if name.endswith("key.bias")]:
        held.pop(name)  # softmax leaves no gradient for it but rounding, which LAMB scales up
    return held, {name: (tuple(each.shape), tuple(each.to_local().shape)) for name, each in parts.items()}


@pytest.mark.parametrize(
    ("precision", "terms", "settings"),
    [
        ("fp32", OWN, {"lora": {"r": 2}, "batch_queries": 1}),  # the other process has no query
        ("fp32", BATCH, {"lora": {"r": 2}, "chunk_queries": 2, "gradient_checkpointing": True}),
        ("bf16", MIXED, {"lora": {"r": 2}, "refresh": {"every_steps": 2}}),
        ("fp32", OWN, {"optimizer": LAMB, "batch_queries": 1}),
        ("fp32", BATCH, {"optimizer": LAMB, "chunk_queries": 2, "gradient_checkpointing": True}),
        ("fp32", MIXED, {"optimizer": LAMB, "refresh": {"every_steps": 2}, "evaluate": {"every_steps": 2}}),
        ("fp32", OWN, {"optimizer": LAMB, "trainable": "query_tower"}),
    ],
)
def test_weights_in_parts_train_as_one(without_dropout, run_processes, tmp_path, precision, terms, settings):
    found, stages = [], {"a": make_stage(terms=terms, steps=3, **settings)}
    for name, shard in (("whole", False), ("parts", True)):
        recipe = without_dropout(stages, precision=precision, shard=shard, save_total_limit=9)
        found.append(run_processes(2, trained, recipe, tmp_path / name))
    (whole, nothing), _ = found[0]
    (parts, shapes), (same, _) = found[1]
    assert not nothing and all(torch.equal(parts[name], same[name]) for name in parts)
    torch.testing.assert_close(parts, whole, **CLOSE)
    assert shapes and all(rows == 2 * own and rest == kept for (rows, *rest), (own, *kept) in shapes.values())


@pytest.mark.parametrize(("first", "then"), [(True, False), (False, True)])
def test_a_run_goes_on_whole_or_in_parts(without_dropout, run_processes, tmp_path, first, then):
    """From the checkpoint of step 2 of 4, on two processes and on one."""
    stage = make_stage(terms=OWN, steps=4, save_every_steps=2, optimizer=LAMB)
    more = {"save_total_limit": 9}
    of_shard = {shard: without_dropout({"a": stage}, shard=shard, **more) for shard in (True, False)}
    whole, _ = trained(World(), of_shard[False], tmp_path / "whole")
    run_processes(2, trained, of_shard[first], tmp_path / "run")
    shutil.rmtree(RunDir(tmp_path / "run").checkpoint("a", 4))
    (found, _), _ = run_processes(2, trained, of_shard[then], tmp_path / "run", True)
    torch.testing.assert_close(found, whole, **CLOSE)


def weights_in_parts(world: World, recipe) -> int:
    encoder = initial_encoder(recipe.encoder, 0)
    sharding.shard(encoder, recipe.stages["a"], world, "fp32", lambda: encoder)
    return sum(isinstance(each, DTensor) for each in encoder.towers.parameters())


def test_layers_of_a_model_and_one_inside_are_split_once(without_dropout, run_processes, tmp_path, tiny_bert):
    (tokenizer := AutoTokenizer.from_pretrained(tiny_bert)).save_pretrained(tmp_path)
    shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4, "num_layers": 3}
    T5EncoderModel(T5Config(vocab_size=len(tokenizer), **shape)).save_pretrained(tmp_path)
    encoder = {"model": str(tmp_path), "pooling": "mean"}
    recipe = without_dropout({"a": make_stage(terms=OWN)}, encoder=encoder)
    assert run_processes(2, weights_in_parts, recipe) == [27, 27]


def test_gradients_in_parts_have_no_loss_scale(without_dropout):
    recipe = without_dropout({"a": make_stage(terms=OWN)})
    encoder = initial_encoder(recipe.encoder, 0)
    with pytest.raises(ValueError, match="no loss scale; set precision=bf16"):
        sharding.shard(encoder, recipe.stages["a"], World(), "fp16", lambda: encoder)
