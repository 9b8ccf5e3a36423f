"""The training loop of a stage: refresh if due, plan a batch, encode, compute losses, pass them back, update
weights."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from tqdm import tqdm

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.failures import PeerError, uninterrupted
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.optimization import Average
from pyserini_ance.recipe.refresh_settings import Product
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, publish_checkpoint, restore_moments
from pyserini_ance.runs.generation import PreviousStage, ProductKind
from pyserini_ance.runs.retention import prune_stage
from pyserini_ance.runs.rundir import RunDir, RunLog
from pyserini_ance.storage.progress import progress_bar
from pyserini_ance.trainer.averaging import average_stage, parts_of
from pyserini_ance.trainer.batch import anchor_sets_of, plan_batch
from pyserini_ance.trainer.callbacks import TrainerCallback
from pyserini_ance.trainer.executors import RefreshExecutor
from pyserini_ance.trainer.frozen_documents import FrozenDocuments
from pyserini_ance.trainer.objective import term_losses, weighted_sum
from pyserini_ance.trainer.optim import build_optimizer, learning_rate, warmup_hint
from pyserini_ance.trainer.refresh import AdoptionLog, Refreshes, RefreshQueue
from pyserini_ance.trainer.resume import Resumed, resume_stage
from pyserini_ance.trainer.row_gradients import use_row_gradients
from pyserini_ance.trainer.stage_clock import StageClock
from pyserini_ance.trainer.step import BatchEncoder

log = logging.getLogger(__name__)


class LossNotFinite(RuntimeError):
    """The loss or its gradient is infinite or NaN."""

    needs_new_recipe = True


class StageTrainer:
    """Trains one stage of a run, from the weights of `initial`, or with `resume` from its newest checkpoint.

    The constructor loads the model and, if the document tower is frozen, encodes the documents; all processes
    call it. `executor_of` chooses who makes the tables and dev scores; `adoption_logs` are adoptions to
    repeat. `callbacks` are called on the main process.
    """

    def __init__(
        self,
        recipe: Recipe,
        name: str,
        data: PreparedData,
        run: RunDir,
        accelerator: Accelerator,
        world: World,
        executor_of: Callable[[Product], RefreshExecutor],
        initial: Checkpoint,
        resume: bool = False,
        adoption_logs: Mapping[ProductKind, AdoptionLog] | None = None,
        callbacks: Sequence[TrainerCallback] = (),
    ):
        self.recipe, self.name, self.data, self.run = recipe, name, data, run
        self.accelerator, self.world, self.log = accelerator, world, RunLog(run, world.is_main)
        self.callbacks = tuple(callbacks) if world.is_main else ()
        self.stage: Stage = recipe.stages[name]
        self.number = list(recipe.stages).index(name)
        self.splits = data.split_rows if recipe.train_split.sampling == "equal" else ()

        needs_previous = self.stage.uses_previous_tables or self.stage.mines_with_previous
        previous_stage = PreviousStage.of(recipe, run, name, world) if needs_previous else None
        self.refreshes = Refreshes(
            run, name, self.stage, data.identity, world, executor_of, adoption_logs or {}, previous_stage
        )
        resumed = resume_stage(run, name, self.refreshes, self.log, world) if resume else Resumed()
        self.progress = resumed.progress or TrainingProgress(name, 0)
        refreshed = (
            step
            for step in range(self.stage.steps + 1)
            if any(queue.product.is_due(step) for queue in self.refreshes.queues)
        )
        self.clock = StageClock(self.progress.step, self.stage.steps, set(refreshed))
        # The progress that belongs to the weights in memory: before the refresh of the current step, which a
        # resumed run repeats.
        self.resumable = self.progress
        self.anchor_sets = anchor_sets_of(data.anchor_sets, self.refreshes.negatives.tables.values())

        self.initial = initial
        source = resumed.checkpoint or initial
        self.encoder = load_encoder(source.encoder, world.device)
        self.encoder.towers.train()
        self.documents: FrozenDocuments | None = None
        if self.stage.trainable == "query_tower":
            self.encoder.untie()
            self.encoder.towers.freeze("document")
            self.documents = self._freeze_documents(source)
        if world.size == 1 and world.device == "cpu":
            use_row_gradients(self.encoder.towers)
        self.optimizer = build_optimizer(self.encoder.towers, self.stage.optimizer)
        if resumed.checkpoint or self.stage.keep_optimizer:
            restore_moments(source, self.optimizer)
        self.batch_encoder = BatchEncoder(
            self.stage,
            data,
            self.encoder,
            accelerator.autocast,
            recipe.encoding.training_tokens_per_batch,
            (recipe.seed, self.number),
            world,
            self.documents,
        )
        log.info(
            "stage %s: from %s, step %d, on %s, processes: %d",
            name,
            source.folder.name,
            self.progress.step,
            world.device,
            world.size,
        )
        if hint := warmup_hint(name, self.stage):
            log.warning(hint)
        world.barrier()  # loading may take longer on one process than on another

    def train(self) -> Checkpoint:
        """Run the remaining steps and return the stage's result.

        When this process is interrupted, or another one is lost, the steps done so far are saved first.
        """
        try:
            self._run_steps()
        except (KeyboardInterrupt, PeerError):
            self._save_interrupted()
            raise
        return self._finish()

    def _run_steps(self) -> None:
        bar = progress_bar(
            desc=f"train {self.name}",
            unit="step",
            seconds_left=self.clock.seconds_left,
            total=self.stage.steps,
            initial=self.progress.step,
            disable=not self.world.is_main,
        )
        with bar:
            for step in range(self.progress.step, self.stage.steps + 1):
                self._refresh(step)
                if step == self.stage.steps or self._is_out_of_patience(step):
                    break
                self._train_step(step, bar)
                bar.update()

    def _train_step(self, step: int, bar: tqdm) -> None:
        start, terms = time.perf_counter(), self.stage.terms
        totals = dict.fromkeys(terms, 0.0)
        ignored_pairs: Counter[str] = Counter()

        batch = plan_batch(
            self.stage,
            self.number,
            step,
            self.recipe.seed,
            self.anchor_sets,
            self.refreshes.negatives.tables,
            self.splits,
            self.refreshes.negatives.teacher_scores,
            self.refreshes.negatives.adopted_step,
        )
        known_positives = self.anchor_sets["query"].known_positives
        for chunk in self.batch_encoder.encode(batch, step, known_positives):
            ignored: dict[str, Tensor] = {}
            losses = term_losses(terms, chunk.batch, self.anchor_sets, chunk.vectors, chunk.passages, ignored)
            values, counts = _to_host(losses, ignored)
            totals = {name: totals[name] + chunk.share * values[name] for name in terms}
            ignored_pairs.update(counts)
            chunk.backward(weighted_sum(terms, losses))
        self.world.sum_gradients(self.encoder.towers.parameters())
        grad_norm = self._clip_gradients()
        loss = sum(term.weight * totals[name] for name, term in terms.items())
        self._check_finite(step, loss, grad_norm)
        with uninterrupted():  # at its end, weights, log and progress are those of the same step
            rate = self._update_weights(step)
            live = self.documents.live_metrics.pop() if self.documents else {}
            seconds = round(time.perf_counter() - start, 4)
            masked = {"false_negatives": dict(ignored_pairs)} if ignored_pairs.keys() else {}
            metrics = {"grad_norm": grad_norm, "learning_rate": rate, **live, **masked, "seconds": seconds}
            self.log.metric("step", stage=self.name, step=step, loss=loss, terms=totals, **metrics)
            self.progress = self.resumable = replace(self.progress, step=step + 1)
        self.clock.stepped(step, seconds)
        bar.set_postfix(loss=f"{loss:.4f}", rate=f"{rate:.1e}", refresh=False)
        for callback in self.callbacks:
            callback.on_step_end(self.name, step, totals, {"loss": loss, **metrics})

    def _clip_gradients(self) -> float:
        """Clip the gradients; return their norm before clipping."""
        parameters, max_norm = self.encoder.towers.parameters(), self.stage.optimizer.max_grad_norm
        return float(self.accelerator.clip_grad_norm_(parameters, max_norm))

    def _check_finite(self, step: int, loss: float, grad_norm: float) -> None:
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            raise LossNotFinite(
                f"stage {self.name}, step {step}: the loss is {loss} and the norm of its gradient "
                f"{grad_norm}; "
                f"lower stages.{self.name}.optimizer.learning_rate or use precision: fp32"
            )

    def _update_weights(self, step: int) -> float:
        """Run the optimizer's step; return the learning rate."""
        rate = learning_rate(self.stage, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return rate

    def _freeze_documents(self, source: Checkpoint) -> FrozenDocuments:
        """Encode the documents, or reuse vectors of the same document tower, whose hash stays the same in
        this stage."""
        snapshot = Snapshot(
            source.encoder,
            source.weights,
            self.data,
            self.recipe.encoding,
            self.run.scratch,
            self.world.device,
            self.world,
            source.document_weights,
        )
        documents = FrozenDocuments(self.stage, snapshot, self.recipe.seed)
        parts = {part: round(seconds, 3) for part, seconds in snapshot.seconds.items()}
        self.log.metric("documents", stage=self.name, step=self.progress.step, parts=parts)
        return documents

    def _refresh(self, step: int) -> None:
        """Before step `step`: publish a checkpoint if due, request the products due from it, and adopt
        products."""
        start = time.perf_counter()
        is_due = any(queue.product.is_due(step) for queue in self.refreshes.queues)
        tables_before = dict(self.refreshes.negatives.table_steps)
        published = self.resumable
        checkpoint = self._publish() if is_due or self._saving_is_due(step) else None

        seconds: dict[str, float] = {}
        generations = self._advance(self.refreshes.tables, step, checkpoint, seconds)
        scores = self._advance(self.refreshes.dev, step, checkpoint, seconds) if self.refreshes.dev else []
        if generations:
            tables = self.refreshes.negatives.tables.values()
            self.anchor_sets = anchor_sets_of(self.data.anchor_sets, tables)
        for _, generation in generations:
            for callback in self.callbacks:
                callback.on_refresh(self.name, step, generation)
        for evaluated_step, score in scores:
            self._on_dev_score(step, evaluated_step, score)
        self.clock.refreshed(step, time.perf_counter() - start)
        if is_due or scores or tables_before != self.refreshes.negatives.table_steps:
            seconds = {"seconds": round(time.perf_counter() - start, 3), **seconds}
            self.log.metric("refresh", stage=self.name, step=step, **seconds)
        if checkpoint:
            # On the main process; the others wait, long on a slow disk.
            self.world.on_main(lambda: self._prune(published, set(tables_before.values())))

    def _advance[T](
        self, queue: RefreshQueue[T], step: int, checkpoint: Checkpoint | None, seconds: dict[str, float]
    ) -> list[tuple[int, T]]:
        """Return the products adopted before step `step`, with the steps of their checkpoints; time it in
        `seconds`."""
        start = time.perf_counter()
        weights = checkpoint.weights if checkpoint and queue.product.is_due(step) else None
        adopted = queue.advance(step, weights)
        seconds[f"{queue.product.kind}_seconds"] = round(time.perf_counter() - start, 3)
        return adopted

    def _on_dev_score(self, step: int, evaluated_step: int, score: float) -> None:
        assert self.stage.evaluate is not None
        self.progress = self.progress.after_evaluation(evaluated_step, score)
        if self.progress.best_step == evaluated_step:
            best = {"checkpoint_step": evaluated_step, "value": score}
            self.log.decide("best", stage=self.name, step=step, **best)
        for callback in self.callbacks:
            callback.on_dev_measure(self.name, evaluated_step, self.stage.evaluate.measure, score)

    def _saving_is_due(self, step: int) -> bool:
        every = self.stage.save_every_steps
        return step == self.stage.steps or bool(step and every and step % every == 0)

    def _publish(self) -> Checkpoint:
        self.world.assert_same(_checksum(self.encoder.towers), "the weights")

        hashes = self.world.on_main(self._write_checkpoint)
        return Checkpoint(self.run.checkpoint(self.name, self.resumable.step), *hashes)

    def _write_checkpoint(self) -> tuple[str, str]:
        """Publish the weights in memory, on the main process; return the hashes of the towers."""
        checkpoint = publish_checkpoint(self.run, self.encoder, self.optimizer, self.resumable)
        self.run.mark("running", f"stage {self.name}, step {self.resumable.step}")
        return checkpoint.hashes

    def _save_interrupted(self) -> None:
        """Publish a checkpoint of the step reached, so that `--resume` repeats at most the step in progress.

        The main process does it alone: all processes have the same weights, and others may have ended.
        """
        if not self.world.is_main or self.resumable.step == 0:
            return
        try:
            self._write_checkpoint()
        except (OSError, RuntimeError) as error:
            log.error("no checkpoint of stage %s, step %d: %s", self.name, self.resumable.step, error)

    def _is_out_of_patience(self, step: int) -> bool:
        patience = self.stage.evaluate and self.stage.evaluate.patience
        if not patience or self.progress.since_best < patience:
            return False
        self.log.decide("early_stop", stage=self.name, step=step, best_step=self.progress.best_step)
        log.info(
            "stage %s ends at step %d: the best dev score is that of step %d",
            self.name,
            step,
            self.progress.best_step,
        )
        return True

    def _prune(self, published: TrainingProgress, tables_in_use: set[int]) -> None:
        """Remove what neither the recipe keeps nor a run resumed from the checkpoint just published needs.

        `tables_in_use` are the steps of the tables that were in use when it was published.
        """
        pending = self.refreshes.pending_steps
        tables = tables_in_use | pending | set(self.refreshes.negatives.table_steps.values())
        # The best checkpoint in `published` stays until the next one is published: a resumed run starts from
        # there.
        best = {p.best_step for p in (published, self.progress)}
        if self.stage.average is not None:
            best |= {p.trained_step for p in (published, self.progress)}
        averaged = self.stage.averaged_steps(published.step)
        checkpoints = {published.step, *pending, *averaged, *(step for step in best if step is not None)}
        vectors = {published.step, *pending}
        prune_stage(self.run, self.name, self.recipe.retention, checkpoints, vectors, tables)

    def _finish(self) -> Checkpoint:
        """Return the result: the best checkpoint by the dev score if it is kept, the last, or an average."""
        self.refreshes.close()
        step = self.progress.best_step if self._keeps_best else self.progress.step
        if self.stage.average is not None and self._average(self.stage.average):
            step = self._average_step
        assert step is not None, "the last checkpoint is always evaluated"
        result = Checkpoint.open(self.run.checkpoint(self.name, step))
        if step == 0:
            log.warning("stage %s never improved on its start, which is its result", self.name)
        end = {"result": result.folder.name, "weights": result.weights}
        self.log.decide("stage_end", stage=self.name, step=self.progress.step, **end)
        tables = set(self.refreshes.negatives.table_steps.values())
        self.world.on_main(
            lambda: prune_stage(self.run, self.name, self.recipe.retention, {step}, {step}, tables)
        )
        return result

    @property
    def _keeps_best(self) -> bool:
        return self.stage.evaluate is not None and self.stage.evaluate.keep_best

    @property
    def _average_step(self) -> int:
        """The step in the name of the average: one after the last, so that no other checkpoint has it."""
        return self.stage.steps + 1

    def _average(self, average: Average) -> bool:
        """Publish the average of weights; return whether it is the stage's result.

        All processes call it. A resumed run repeats it, with the same weights.
        """
        progress = self.progress
        one = progress.trained_step if self._keeps_best else progress.step
        assert one is not None, "the last checkpoint is always evaluated"
        steps = self.stage.averaged_steps(progress.step) or [one]
        trained = [Checkpoint.open(self.run.checkpoint(self.name, step)) for step in steps]
        parts = parts_of(average, self.initial, trained)
        dev_score = self.refreshes.dev_score if self._keeps_best else None
        return average_stage(self.run, self.log, self.world, progress, self._average_step, parts, dev_score)


def _to_host(
    losses: Mapping[str, Tensor], counts: Mapping[str, Tensor]
) -> tuple[dict[str, float], dict[str, int]]:
    """Return the values of losses and of counts, which come over from the device together."""
    # Counts are whole in float32 up to 16 million pairs of a chunk.
    values = torch.stack([value.detach().float() for value in (*losses.values(), *counts.values())]).tolist()
    number = len(losses)
    return (
        dict(zip(losses, values[:number], strict=True)),
        {name: int(value) for name, value in zip(counts, values[number:], strict=True)},
    )


def _checksum(towers: nn.Module) -> float:
    return float(sum(p.detach().double().sum() for p in towers.parameters()))
