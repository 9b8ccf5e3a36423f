"""The checkpoints of a stage: when they are published and removed, and which is the result."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import (
    Checkpoint,
    TrainingProgress,
    moments_of,
    prune_stage,
    publish_checkpoint,
)
from pyserini_ance.runs.generation import base_before
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.refresh import RefreshQueue
from pyserini_ance.trainer.sharding import gather_weights

log = logging.getLogger(__name__)


@dataclass
class StageCheckpoints:
    """Publishes the weights of `encoder` and the state of `optimizer`; all processes make the same calls.

    `queues` tell which checkpoints and tables are still needed. `scaler` has the loss scale of fp16.
    `whole`: if the weights of `encoder` are in parts, on the main process an encoder for all of them.
    """

    recipe: Recipe
    name: str
    run: RunDir
    world: World
    log: RunLog
    queues: Sequence[RefreshQueue]
    encoder: Encoder
    optimizer: Optimizer
    scaler: torch.amp.GradScaler
    whole: Encoder | None = None

    def __post_init__(self) -> None:
        self.stage = self.recipe.stages[self.name]

    def publish(self, progress: TrainingProgress) -> Checkpoint:
        """Publish the weights in memory, which are those of `progress`."""
        if self.whole:
            gather_weights(self.encoder, self.whole, self.world)
        else:
            trained = [p for p in self.encoder.towers.parameters() if p.requires_grad]
            checksum = sum(weight.detach().double().sum() for weight in trained)
            self.world.assert_same(float(checksum), "the weights")

        moments = moments_of(self.optimizer, self.world.is_main)
        hashes = self.world.on_main(lambda: self._write(moments, progress))
        return Checkpoint(self.run.checkpoint(self.name, progress.step), *hashes)

    def _write(self, moments: dict[str, torch.Tensor], progress: TrainingProgress) -> tuple[str, str]:
        """Publish the weights on the main process; return the hashes of the towers."""
        checkpoint = publish_checkpoint(self.run, self.whole or self.encoder, moments, progress, self.scaler)
        self.run.trainer.mark("running", f"stage {self.name}, step {progress.step}")
        return checkpoint.hashes

    def save_interrupted(self, progress: TrainingProgress) -> None:
        """Publish a checkpoint of the step reached, so that `--resume` repeats at most the step in progress.

        The main process does it alone: all processes have the same weights, and others may have ended. Of
        weights in parts it has not all.
        """
        if not self.world.is_main or progress.step == 0:
            return
        if self.whole:
            log.warning("shard saves no checkpoint of an interruption; set save_every_steps")
            return
        try:
            self._write(moments_of(self.optimizer), progress)
        except (OSError, RuntimeError) as error:
            log.error("no checkpoint of stage %s, step %d: %s", self.name, progress.step, error)

    def prune(self, published: TrainingProgress, progress: TrainingProgress) -> None:
        """Remove what neither the recipe keeps nor a run resumed from the checkpoint just published needs.

        `published` is the progress in that checkpoint, `progress` that after the refresh.
        """
        pending = {request.step for queue in self.queues for request in queue.pending}
        # The best checkpoint in `published` stays until the next one is published: a resumed run starts from
        # there.
        best = {p.best_step for p in (published, progress)}
        encoded = {published.step, *pending}
        if encode := self.stage.effective_refresh.encode:  # the refreshes that are pending, and the next one
            bases = {base_before(self.run, self.name, step, encode) for step in (*pending, self.stage.steps)}
            encoded |= {step for step in bases if step is not None}
        checkpoints = {*encoded, *(step for step in best if step is not None)}
        prune_stage(self.run, self.name, self.recipe, checkpoints, encoded)

    def result(self, progress: TrainingProgress) -> Checkpoint:
        """End the stage; return its result: with `keep_best` the best checkpoint by dev, else the last."""
        for queue in self.queues:
            queue.close()
        keeps_best = self.stage.evaluate is not None and self.stage.evaluate.keep_best
        step = progress.best_step if keeps_best else progress.step
        assert step is not None, "the last checkpoint is always evaluated"
        result = Checkpoint.open(self.run.checkpoint(self.name, step))
        if step == 0:
            log.warning("stage %s never improved on its start, which is its result", self.name)
        end = {"result": result.folder.name, "weights": result.weights}
        self.log.decide("stage_end", stage=self.name, step=progress.step, **end)
        self.world.on_main(lambda: prune_stage(self.run, self.name, self.recipe, {step}, {step}))
        return result
