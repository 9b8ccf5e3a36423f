"""The training loop: step after step of a stage, with checkpoints, and with what is made of them, where they are due."""

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from accelerate import Accelerator
from torch import nn
from tqdm import tqdm

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import load_encoder
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.products import Product
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.checkpoint import Checkpoint, Place, publish_checkpoint, restore_moments
from pyserini_ance.runs.former import Former
from pyserini_ance.runs.log import RunLog
from pyserini_ance.runs.orders import ProductKind
from pyserini_ance.runs.retention import prune_stage
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.adoption import Adoption
from pyserini_ance.trainer.batch import plan_batch
from pyserini_ance.trainer.fixed import FixedDocuments
from pyserini_ance.trainer.handover import Desk, Script
from pyserini_ance.trainer.optim import build_optimizer, learning_rate
from pyserini_ance.trainer.resume import Resumed, resume_stage
from pyserini_ance.trainer.step import StepRunner

log = logging.getLogger(__name__)


class StageTraining:
    """One stage of a run. `desk_of` says where a product is ordered: of the training processes themselves, or of a refresher.

    `scripts` are recorded adoptions to repeat.
    """

    def __init__(
        self,
        recipe: Recipe,
        name: str,
        data: PreparedData,
        run: RunDir,
        accelerator: Accelerator,
        world: World,
        desk_of: Callable[[Product], Desk],
        scripts: Mapping[ProductKind, Script] | None = None,
    ):
        self.recipe, self.name, self.data, self.run = recipe, name, data, run
        self.stage: Stage = recipe.stages[name]
        self.number = list(recipe.stages).index(name)
        self.parts = data.part_rows if recipe.train_split.mixing == "even" else ()
        self.accelerator, self.world, self.log = accelerator, world, RunLog(run, world.is_main)
        looks_back = self.stage.takes_over or self.stage.mines_with_previous
        former = Former.of(recipe, run, name, world) if looks_back else None
        self.adoption = Adoption(run, name, self.stage, data.identity, world, desk_of, scripts or {}, former)
        self.place = Place(name, 0)

    def train(self, start: Checkpoint, resume: bool = False) -> Checkpoint:
        """Run the steps from `start`, or with `resume` go on from the newest checkpoint; returns the stage's result."""
        self._begin(start, resume)
        shown = {"desc": f"train {self.name}", "unit": "step", "smoothing": 0.05, "disable": not self.world.is_main}
        with tqdm(total=self.stage.steps, initial=self.place.step, **shown) as bar:
            for step in range(self.place.step, self.stage.steps + 1):
                if self._visit(step):
                    break
                self._step(step, bar)
                bar.update()
        return self._finish()

    def _begin(self, start: Checkpoint, resume: bool) -> None:
        resumed = resume_stage(self.run, self.name, self.adoption, self.log, self.world) if resume else Resumed()
        source, self.place = resumed.checkpoint or start, resumed.place or self.place
        self.encoder = load_encoder(source.encoder, self.world.device)
        self.encoder.towers.train()
        self.documents = None
        if self.stage.train == "queries":
            self.encoder.untie()
            self.encoder.towers.freeze("document")
            self.documents = self._fix_documents(source)
        self.optimizer = build_optimizer(self.encoder.towers, self.stage.optimizer)
        if resumed.checkpoint or self.stage.keep_optimizer:
            restore_moments(source, self.optimizer)
        where = (self.place.step, self.world.device, self.world.size)
        log.info("stage %s: from %s, step %d, on %s, processes: %d", self.name, source.folder.name, *where)
        self.runner = StepRunner(
            self.stage,
            self.data,
            self.encoder,
            self.accelerator.autocast,
            self.recipe.encoding.training_tokens_per_batch,
            (self.recipe.seed, self.number),
            self.world,
            self.documents,
        )
        self.world.meet()  # reading may take one longer than another

    def _fix_documents(self, source: Checkpoint) -> FixedDocuments:
        """Encoded once, unless somebody has done it: whatever trains, the document tower's hash stays, and finds them."""
        where = (self.run.scratch, self.world.device, self.world, source.document_weights)
        snapshot = Snapshot(source.encoder, source.weights, self.data, self.recipe.encoding, *where)
        documents = FixedDocuments(self.stage, snapshot, self.recipe.seed)
        parts = {part: round(seconds, 3) for part, seconds in snapshot.seconds.items()}
        self.log.metric("documents", stage=self.name, step=self.place.step, parts=parts)
        return documents

    def _visit(self, step: int) -> bool:
        """What is due before step `step`: a checkpoint, orders of what is to be made of it, and adoptions. Does the stage end here?"""
        start = time.perf_counter()
        due = self.adoption.due(step)
        self.place = published = replace(self.place, step=step)
        standing = dict(self.adoption.table_steps)
        checkpoint = self._publish() if due or self._saving_is_due(step) else None
        seconds, measured = {}, []
        for kind in self.adoption.handovers:
            since = time.perf_counter()
            measured += self.adoption.proceed(kind, step, checkpoint.weights if kind in due else None)
            seconds[f"{kind}_seconds"] = round(time.perf_counter() - since, 3)
        for of_step, value in measured:
            self.place = self.place.after_evaluation(of_step, value)
            if self.place.best_step == of_step:
                self.log.decide("best", stage=self.name, step=step, of=of_step, value=value)
        if due or measured or standing != self.adoption.table_steps:
            self.log.metric("refresh", stage=self.name, step=step, seconds=round(time.perf_counter() - start, 3), **seconds)
        if checkpoint:
            self.world.once(lambda: self._prune(published, set(standing.values())))  # on a slow disk the others wait for long
        return step == self.stage.steps or self._is_past_its_best(step)

    def _saving_is_due(self, step: int) -> bool:
        every = self.stage.save_every_steps
        return step == self.stage.steps or bool(step and every and step % every == 0)

    def _publish(self) -> Checkpoint:
        self.world.same(_checksum(self.encoder.towers), "the weights")

        def publish() -> tuple[str, str]:
            checkpoint = publish_checkpoint(self.run, self.encoder, self.optimizer, self.place)
            self.run.mark("running", f"stage {self.name}, step {self.place.step}")
            return checkpoint.hashes

        return Checkpoint(self.run.checkpoint(self.name, self.place.step), *self.world.once(publish))

    def _is_past_its_best(self, step: int) -> bool:
        patience = self.stage.evaluate and self.stage.evaluate.patience
        if not patience or self.place.since_best < patience:
            return False
        self.log.decide("early_stop", stage=self.name, step=step, best_step=self.place.best_step)
        log.info("stage %s ends at step %d: the best dev measure is that of step %d", self.name, step, self.place.best_step)
        return True

    def _prune(self, published: Place, standing: set[int]) -> None:
        """Keep what the recipe says, and all that a run resumed from the checkpoint just published would need.

        `standing` are the steps of the tables that were in use when it was published.
        """
        ordered = self.adoption.open_steps
        tables = standing | ordered | set(self.adoption.table_steps.values())
        # The best that this checkpoint's place names stays until the next one: resuming starts from that place.
        best = {place.best_step for place in (published, self.place)} - {None}
        prune_stage(self.run, self.name, self.recipe.keep, {published.step, *ordered, *best}, {published.step, *ordered}, tables)

    def _step(self, step: int, bar: tqdm) -> None:
        start = time.perf_counter()
        batch = plan_batch(self.stage, self.number, step, self.recipe.seed, self.data.directions, self.adoption.tables, self.parts)
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
            **(self.documents.findings.take() if self.documents else {}), seconds=round(time.perf_counter() - start, 4),
        )  # fmt: skip
        bar.set_postfix(loss=f"{total:.4f}", rate=f"{rate:.1e}", refresh=False)

    def _finish(self) -> Checkpoint:
        """The best checkpoint by the dev measure where one was kept, else the last."""
        self.adoption.close()
        keep_best = self.stage.evaluate is not None and self.stage.evaluate.keep_best
        step = self.place.best_step if keep_best else self.place.step
        result = Checkpoint.open(self.run.checkpoint(self.name, step))
        self.log.decide("stage_end", stage=self.name, step=self.place.step, result=result.folder.name, weights=result.weights)
        tables = set(self.adoption.table_steps.values())
        self.world.once(lambda: prune_stage(self.run, self.name, self.recipe.keep, {step}, {step}, tables))
        return result


def _checksum(towers: nn.Module) -> float:
    return float(sum(p.detach().double().sum() for p in towers.parameters()))
