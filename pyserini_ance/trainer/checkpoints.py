"""The checkpoints of a stage: when they are published and removed, and which, or what mean of them, is the
result."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.stage import Average
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, publish_checkpoint
from pyserini_ance.runs.retention import prune_stage
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.products import Refreshes

log = logging.getLogger(__name__)


@dataclass
class StageCheckpoints:
    """Publishes the weights of `encoder` and the state of `optimizer`; all processes make the same calls.

    `refreshes` tell which checkpoints and tables are still needed. `initial` is what the stage started from.
    `scaler` has the scale of the loss in fp16.
    """

    recipe: Recipe
    name: str
    run: RunDir
    world: World
    log: RunLog
    initial: Checkpoint
    refreshes: Refreshes
    encoder: Encoder
    optimizer: Optimizer
    scaler: torch.amp.GradScaler

    def __post_init__(self) -> None:
        self.stage = self.recipe.stages[self.name]

    def are_due(self, step: int) -> bool:
        """Whether the weights before step `step` are saved even if nothing is made from them."""
        every = self.stage.save_every_steps
        return step == self.stage.steps or bool(step and every and step % every == 0)

    def publish(self, progress: TrainingProgress) -> Checkpoint:
        """Publish the weights in memory, which are those of `progress`."""
        checksum = sum(p.detach().double().sum() for p in self.encoder.towers.parameters())
        self.world.assert_same(float(checksum), "the weights")

        hashes = self.world.on_main(lambda: self._write(progress))
        return Checkpoint(self.run.checkpoint(self.name, progress.step), *hashes)

    def _write(self, progress: TrainingProgress) -> tuple[str, str]:
        """Publish the weights on the main process; return the hashes of the towers."""
        scaler = self.scaler if self.scaler.is_enabled() else None
        checkpoint = publish_checkpoint(self.run, self.encoder, self.optimizer, progress, scaler=scaler)
        self.run.mark("running", f"stage {self.name}, step {progress.step}")
        return checkpoint.hashes

    def save_interrupted(self, progress: TrainingProgress) -> None:
        """Publish a checkpoint of the step reached, so that `--resume` repeats at most the step in progress.

        The main process does it alone: all processes have the same weights, and others may have ended.
        """
        if not self.world.is_main or progress.step == 0:
            return
        try:
            self._write(progress)
        except (OSError, RuntimeError) as error:
            log.error("no checkpoint of stage %s, step %d: %s", self.name, progress.step, error)

    def prune(self, published: TrainingProgress, progress: TrainingProgress, tables_in_use: set[int]) -> None:
        """Remove what neither the recipe keeps nor a run resumed from the checkpoint just published needs.

        `published` is the progress in that checkpoint, `progress` that after the refresh. `tables_in_use` are
        the steps of the tables that were in use when it was published.
        """
        pending = self.refreshes.pending_steps
        tables = tables_in_use | pending | set(self.refreshes.negatives.table_steps.values())
        # The best checkpoint in `published` stays until the next one is published: a resumed run starts from
        # there.
        best = {p.best_step for p in (published, progress)}
        if self.stage.average is not None:
            best |= {p.trained_step for p in (published, progress)}
        averaged = self.stage.averaged_steps(published.step)
        checkpoints = {published.step, *pending, *averaged, *(step for step in best if step is not None)}
        vectors = {published.step, *pending}
        prune_stage(self.run, self.name, self.recipe.retention, checkpoints, vectors, tables)

    def result(self, progress: TrainingProgress) -> Checkpoint:
        """End the stage; return its result: the best checkpoint by the dev score if it is kept, the last, or
        an average."""
        for queue in self.refreshes.queues:
            queue.close()
        keeps_best = self.stage.evaluate is not None and self.stage.evaluate.keep_best
        step = progress.best_step if keeps_best else progress.step
        if self.stage.average is not None and self._average(self.stage.average, progress, keeps_best):
            step = self.stage.steps + 1
        assert step is not None, "the last checkpoint is always evaluated"
        result = Checkpoint.open(self.run.checkpoint(self.name, step))
        if step == 0:
            log.warning("stage %s never improved on its start, which is its result", self.name)
        end = {"result": result.folder.name, "weights": result.weights}
        self.log.decide("stage_end", stage=self.name, step=progress.step, **end)
        tables = set(self.refreshes.negatives.table_steps.values())
        retention = self.recipe.retention
        self.world.on_main(lambda: prune_stage(self.run, self.name, retention, {step}, {step}, tables))
        return result

    def _average(self, average: Average, progress: TrainingProgress, keeps_best: bool) -> bool:
        """Publish the mean of checkpoints and record it; return whether it is the stage's result.

        Its step is one after the last, so that no other checkpoint has it. With `keeps_best` it is the
        result if no checkpoint of `progress` has a better dev score. A resumed run repeats it, with the same
        weights.
        """
        start, step = time.perf_counter(), self.stage.steps + 1
        one = progress.trained_step if keeps_best else progress.step
        assert one is not None, "the last checkpoint is always evaluated"
        averaged = self.stage.averaged_steps(progress.step) or [one]
        trained = [Checkpoint.open(self.run.checkpoint(self.name, one)) for one in averaged]
        share = average.start or 0.0
        parts = [(self.initial, share)] if share else []
        parts += [(checkpoint, (1 - share) / len(trained)) for checkpoint in trained]
        named = [{"checkpoint": c.folder.name, "weights": c.weights, "share": of_all} for c, of_all in parts]

        def publish() -> tuple[str, str]:
            at_end, made_from = TrainingProgress(self.name, step), {"average_of": named}
            return publish_checkpoint(self.run, mean_encoder(parts), None, at_end, made_from).hashes

        made = Checkpoint(self.run.checkpoint(self.name, step), *self.world.on_main(publish))
        where = {"stage": self.name, "step": progress.step}
        about: dict[str, Any] = {"of": named}
        is_result, verdict = True, "it is the result"
        if keeps_best:
            assert self.refreshes.dev is not None and progress.best_value is not None
            value, best = self.refreshes.dev.score(step, made.weights), progress.best_value
            is_result = value >= best
            about |= {"value": value, "best_step": progress.best_step, "best_value": best}
            verdict = f"dev {value:.4f}; the best checkpoint is of step {progress.best_step} with {best:.4f}"
        self.log.decide("average", **where, weights=made.weights, **about, is_result=is_result)
        if keeps_best and is_result:
            self.log.decide("best", **where, checkpoint_step=step, value=about["value"])
        seconds = round(time.perf_counter() - start, 3)
        self.log.metric("average", **where, seconds=seconds)
        names = ", ".join(f"{of_all:.3g} of {checkpoint.folder.name}" for checkpoint, of_all in parts)
        log.info("stage %s: average of %s; %s; %.1f s", self.name, names, verdict, seconds)
        return is_result


def mean_encoder(parts: Sequence[tuple[Checkpoint, float]]) -> Encoder:
    """The encoder of the last of `parts` (checkpoint, share), with the weighted mean of all parts' weights.

    Integers, such as position ids, stay those of the last part. Weights that are equal in all parts, such as
    those of a frozen tower, stay bitwise the same. Raises ValueError for encoders of different shapes.
    """
    last = parts[-1][0]
    encoder = load_encoder(last.encoder)
    weights = encoder.towers.state_dict()
    # As differences from the last part, in float64: equal weights then add exactly nothing.
    totals = {
        name: torch.zeros_like(w, dtype=torch.float64) for name, w in weights.items() if w.is_floating_point()
    }
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    for checkpoint, share in parts[:-1]:
        other = load_encoder(checkpoint.encoder)
        others = {name: tuple(weight.shape) for name, weight in other.towers.state_dict().items()}
        names = f"average: {checkpoint.folder.name} cannot be averaged with {last.folder.name}"
        if different := sorted(n for n in shapes.keys() | others.keys() if shapes.get(n) != others.get(n)):
            first = different[0]
            shown = f"{others.get(first)} and {shapes.get(first)}"
            cure = "Remove `average`, or start from weights of the same model"
            differ = f"{len(different)} weights have other shapes, first {first}: {shown}"
            raise ValueError(f"{names}: {differ}. {cure}")
        # Tied towers may be averaged into a pair, as their weights are both towers', but no pair into them.
        if encoder.towers.tied and not other.towers.tied:
            raise ValueError(f"{names}: it has two towers, the other has one. Remove `average`")
        for name, weight in other.towers.state_dict().items():
            if name in totals:
                totals[name] += share * (weight.double() - weights[name].double())
    mean = {name: (weights[name].double() + total).to(weights[name].dtype) for name, total in totals.items()}
    encoder.towers.load_state_dict({**weights, **mean})
    return encoder
