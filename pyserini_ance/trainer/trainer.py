"""The training loop: step after step of a stage, with refreshes, evaluations and checkpoints where they are due."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace

from accelerate import Accelerator
from tqdm import tqdm

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import load_encoder
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.models import Recipe, Stage
from pyserini_ance.runs.checkpoint import Checkpoint, Place, newest_place, prune, publish_checkpoint, restore_moments
from pyserini_ance.runs.generation import Refreshed, TableKey, mined_sources, open_tables
from pyserini_ance.runs.log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.batch import plan_batch
from pyserini_ance.trainer.optim import build_optimizer, learning_rate
from pyserini_ance.trainer.step import StepRunner

log = logging.getLogger(__name__)


class StageTraining:
    """One stage of a run. `refresh` is the refresher's, injected: trainer and refresher do not know each other."""

    def __init__(
        self,
        recipe: Recipe,
        name: str,
        data: PreparedData,
        run: RunDir,
        accelerator: Accelerator,
        refresh: Callable[..., Refreshed],
        world: World,
    ):
        self.recipe, self.name, self.data, self.run = recipe, name, data, run
        self.stage: Stage = recipe.stages[name]
        self.number = list(recipe.stages).index(name)
        self.accelerator, self.refresh, self.log, self.world = accelerator, refresh, RunLog(run), world
        self.tables: dict[TableKey, NegativeTable] = {}
        self.place = Place(name, 0)

    def train(self, start: Checkpoint, resume: bool = False) -> Checkpoint:
        """Run the steps from `start`, or with `resume` go on from the newest checkpoint; returns the stage's result."""
        self._begin(start, resume)
        with tqdm(total=self.stage.steps, initial=self.place.step, desc=f"train {self.name}", unit="step", smoothing=0.05) as bar:
            for step in range(self.place.step, self.stage.steps):
                self._visit(step)
                self._step(step, bar)
                bar.update()
            self._visit(self.stage.steps)
        return self._finish()

    def _begin(self, start: Checkpoint, resume: bool) -> None:
        place = newest_place(self.run, self.name) if resume else None
        source = Checkpoint.open(self.run.checkpoint(self.name, place.step)) if place else start
        self.place = place or self.place
        self.encoder = load_encoder(source.encoder, str(self.accelerator.device))
        self.encoder.towers.train()
        self.optimizer = build_optimizer(self.encoder.towers, self.stage.optimizer)
        if place or self.stage.keep_optimizer:
            restore_moments(source, self.optimizer)
        if resume:
            self._recall()
        log.info("stage %s: from %s, step %d, %s", self.name, source.folder.name, self.place.step, self.accelerator.device)
        self.runner = StepRunner(
            self.stage,
            self.data,
            self.encoder,
            self.accelerator.autocast,
            self.recipe.encoding.training_tokens_per_batch,
            (self.recipe.seed, self.number),
            self.world,
        )

    def _recall(self) -> None:
        """Forget what was logged after the checkpoint, and take up the tables that were adopted before it."""
        self.log.forget_after(self.name, self.place.step)
        for adopted in self.log.decisions("adopt"):
            if adopted["stage"] == self.name:
                self.tables.update(open_tables(self.run.folder / adopted["folder"], adopted["weights"], self.data.collection.digest))

    def _visit(self, step: int) -> None:
        """What is due before step `step`: a checkpoint, and from it new negatives, a dev measure, or both."""
        sources, measure = self._due_sources(step), self.stage.evaluation_is_due(step)
        saving = step == self.stage.steps or (step and self.stage.save_every_steps and step % self.stage.save_every_steps == 0)
        self.place = published = replace(self.place, step=step)
        if not (sources or measure or saving):
            return
        checkpoint = publish_checkpoint(self.run, self.encoder, self.optimizer, self.place)
        self.run.mark("running", f"stage {self.name}, step {step}")
        if sources or measure:
            start = time.perf_counter()
            refreshed = self.refresh(checkpoint, self.name, step, sources, self.tables, measure)
            self._take(refreshed, checkpoint, step, time.perf_counter() - start)
        # The best that this checkpoint's place names stays until the next one: resuming starts from that place.
        best = {place.best_step for place in (published, self.place)} - {None, step}
        prune(self.run, self.name, [checkpoint, *(Checkpoint.open(self.run.checkpoint(self.name, b)) for b in best)])

    def _due_sources(self, step: int) -> dict:
        if step == 0:
            return mined_sources(self.stage)
        return mined_sources(self.stage, refreshed_only=True) if self.stage.refresh_is_due(step) else {}

    def _take(self, refreshed: Refreshed, checkpoint: Checkpoint, step: int, seconds: float) -> None:
        where = {"stage": self.name, "step": step}
        self.log.metric("refresh", **where, seconds=round(seconds, 3), parts=refreshed.seconds)
        if refreshed.tables:
            folder = str(refreshed.folder.relative_to(self.run.folder))
            self.log.decide("adopt", **where, folder=folder, weights=checkpoint.weights)
            self.tables.update(refreshed.tables)
            self.log.metric("generation", **where, tables=refreshed.reports)
        if refreshed.dev is not None:
            self.log.metric("dev", **where, measure=self.stage.evaluate.measure, value=refreshed.dev)
            log.info("stage %s, step %d: dev %s %.4f", self.name, step, self.stage.evaluate.measure, refreshed.dev)
            if self.place.best_value is None or refreshed.dev > self.place.best_value:
                self.log.decide("best", **where, value=refreshed.dev)
                self.place = replace(self.place, best_step=step, best_value=refreshed.dev)

    def _step(self, step: int, bar: tqdm) -> None:
        start = time.perf_counter()
        documents = len(self.data.collection.documents)
        batch = plan_batch(self.stage, self.number, step, self.recipe.seed, self.data.split, documents, self.tables)
        losses = self.runner.accumulate(batch, step)
        norm = float(self.accelerator.clip_grad_norm_(self.encoder.towers.parameters(), self.stage.optimizer.max_grad_norm))
        total = sum(self.stage.terms[name].weight * loss for name, loss in losses.items())
        if not (math.isfinite(total) and math.isfinite(norm)):
            raise RuntimeError(
                f"stage {self.name}, step {step}: the loss is {total} and its gradient's norm {norm}; "
                f"lower stages.{self.name}.optimizer.learning_rate or use precision: fp32"
            )
        rate = learning_rate(self.stage, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.log.metric(
            "step", stage=self.name, step=step, loss=total, terms=losses, grad_norm=norm, learning_rate=rate,
            seconds=round(time.perf_counter() - start, 4),
        )  # fmt: skip
        bar.set_postfix(loss=f"{total:.4f}", rate=f"{rate:.1e}", refresh=False)

    def _finish(self) -> Checkpoint:
        """The best checkpoint by the dev measure where one was kept, else the last."""
        keep_best = self.stage.evaluate is not None and self.stage.evaluate.keep_best
        step = self.place.best_step if keep_best else self.stage.steps
        result = Checkpoint.open(self.run.checkpoint(self.name, step))
        self.log.decide("stage_end", stage=self.name, step=self.stage.steps, result=result.folder.name, weights=result.weights)
        prune(self.run, self.name, [result])
        return result
