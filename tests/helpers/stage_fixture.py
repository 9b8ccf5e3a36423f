"""A stage that tests train: over the small collection, in a run directory of its own."""

import torch
from helpers.stages import LOSS, make_stage

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, publish_checkpoint
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.trainer.callbacks import TrainerCallback
from pyserini_ance.trainer.executors import SyncExecutor
from pyserini_ance.trainer.trainer import StageTrainer

MIXED = {"query": {"negatives": [{"kind": "ann", "top_k": 8, "num_negatives": 2}], "loss": LOSS}}
MIXED["batch"] = {"in_batch_negatives": True, "loss": LOSS, "weight": 0.5}


class StopAt(TrainerCallback):
    """Interrupts training at the end of a step."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, stage, step, losses, metrics):
        if step == self.step:
            raise KeyboardInterrupt


class Losses(TrainerCallback):
    """Keeps the losses of each step, by term and together."""

    def __init__(self):
        self.terms, self.totals = [], []

    def on_step_end(self, stage, step, losses, metrics):
        self.terms.append(dict(losses))
        self.totals.append(metrics["loss"])


class Training:
    def __init__(self, small_recipe, folder, terms: dict, device: str = "cpu", encoder=None, **stage):
        settings = make_stage(**{"steps": 10, "terms": terms, **stage})
        more = {"device": torch.device(device).type, **({"encoder": encoder} if encoder else {})}
        self.recipe, self.run = small_recipe({"a": settings}, **more), RunDir(folder)
        self.world = World(device=device)
        self.data = tokenize(self.recipe, read_collection(self.recipe))
        encoder = initial_encoder(self.recipe.encoder, 0)
        self.start = publish_checkpoint(self.run, encoder, None, TrainingProgress("initial", 0))

    @property
    def make(self):
        return Refresher(self.recipe, self.data, self.run, self.world).make

    def stage(self, make=None, resume: bool = False, callbacks=()) -> StageTrainer:
        executor = SyncExecutor(make or self.make)
        given = (self.recipe, "a", self.data, self.run, self.world, lambda settings: executor, self.start)
        return StageTrainer(*given, resume, callbacks=callbacks)

    def train(self, make=None, resume: bool = False, callbacks=()) -> Checkpoint:
        return self.stage(make, resume, callbacks).train()

    def metrics(self, event: str) -> list[dict]:
        return [record for record in read_json_lines(self.run.metrics) if record["event"] == event]

    def decisions(self, event: str) -> list[dict]:
        return [record for record in read_json_lines(self.run.decisions) if record["event"] == event]
