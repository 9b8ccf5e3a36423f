"""The training loop of a stage: refresh if due, plan a batch, encode, compute losses, pass them back, update
weights."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from tqdm import tqdm

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.failures import PeerError, uninterrupted
from pyserini_ance.distributed.gradient_sum import GradientSum
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.hardware import DTYPES, resolve_precision
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.refresh_settings import Product
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, restore_moments
from pyserini_ance.runs.generation import PreviousStage, ProductKind
from pyserini_ance.runs.provenance import highest_peak_bytes
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.progress import progress_bar
from pyserini_ance.trainer.batch import anchor_sets_of, plan_batch
from pyserini_ance.trainer.callbacks import StageClock, StepReport, TrainerCallback
from pyserini_ance.trainer.checkpoints import StageCheckpoints
from pyserini_ance.trainer.executors import RefreshExecutor
from pyserini_ance.trainer.frozen_documents import FrozenDocuments
from pyserini_ance.trainer.objective import term_losses, weighted_sum
from pyserini_ance.trainer.onednn_linear import use_onednn_linears
from pyserini_ance.trainer.optim import build_optimizer, learning_rate, update_weights, warmup_hint
from pyserini_ance.trainer.refresh import AdoptionLog, Refreshes, RefreshQueue
from pyserini_ance.trainer.resume import Resumed, resume_stage
from pyserini_ance.trainer.row_gradients import use_row_gradients
from pyserini_ance.trainer.step import BatchEncoder

log = logging.getLogger(__name__)


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
        world: World,
        executor_of: Callable[[Product], RefreshExecutor],
        initial: Checkpoint,
        resume: bool = False,
        adoption_logs: Mapping[ProductKind, AdoptionLog] | None = None,
        callbacks: Sequence[TrainerCallback] = (),
    ):
        self.recipe, self.name, self.data, self.run = recipe, name, data, run
        self.world, self.log = world, RunLog(run, world.is_main)
        self.callbacks = tuple(callbacks) if world.is_main else ()
        self.stage: Stage = recipe.stages[name]
        self.number = list(recipe.stages).index(name)
        self.splits = data.split_rows if recipe.train_split.sampling == "equal" else ()

        self.refreshes = self._refreshes(executor_of, adoption_logs or {})
        resumed = resume_stage(run, name, self.refreshes, self.log, world) if resume else Resumed()
        self.progress = resumed.progress or TrainingProgress(name, 0)
        refreshed = set(filter(self.refreshes.are_due, range(self.stage.steps + 1)))
        self.clock = StageClock(self.progress.step, self.stage.steps, refreshed)
        # The progress that belongs to the weights in memory: before the refresh of the current step, which a
        # resumed run repeats.
        self.resumable = self.progress
        self.anchor_sets = anchor_sets_of(data.anchor_sets, self.refreshes.negatives.tables.values())

        source = resumed.checkpoint or initial
        self.encoder = load_encoder(source.encoder, world.device)
        self.encoder.towers.train()
        # A GPU works on a step while the host plans the next one: a step's numbers are read one step late.
        self.runs_ahead = self.encoder.device.type != "cpu"
        self.unread: list[StepReport] = []  # of steps whose numbers have not been read
        self.documents = self._freeze_documents(source) if self.stage.trainable == "query_tower" else None
        if world.size == 1 and world.device == "cpu":
            use_row_gradients(self.encoder.towers)
        if world.device == "cpu":
            use_onednn_linears(self.encoder.towers)
        self.optimizer = build_optimizer(self.encoder.towers, self.stage.optimizer)
        # Gradients too small for fp16 are scaled up with the loss; other precisions need no scale.
        # The main process resolves `auto` for all ranks: every rank encodes a step in the same precision.
        self.precision = world.on_main(lambda: resolve_precision(recipe.precision, world.device))
        is_scaled = self.precision == "fp16"
        self.scaler = torch.amp.GradScaler(self.encoder.device.type) if is_scaled else None
        if resumed.checkpoint or self.stage.keep_optimizer:
            restore_moments(source, self.optimizer, self.scaler)
        self.gradients = GradientSum(self.encoder.towers.parameters(), world)
        self.checkpoints = self._checkpoints(initial)
        self.batch_encoder = self._batch_encoder()
        self._announce(source)
        world.barrier()  # loading may take longer on one process than on another

    def _refreshes(
        self, executor_of: Callable[[Product], RefreshExecutor], logs: Mapping[ProductKind, AdoptionLog]
    ) -> Refreshes:
        needs_previous = self.stage.uses_previous_tables or self.stage.mines_with_previous
        previous = PreviousStage.of(self.recipe, self.run, self.name, self.world) if needs_previous else None
        return Refreshes(
            self.run, self.name, self.stage, self.data.identity, self.world, executor_of, logs, previous
        )

    def _freeze_documents(self, source: Checkpoint) -> FrozenDocuments:
        self.encoder.untie()
        self.encoder.towers.freeze("document")
        documents = FrozenDocuments.of(self.recipe, self.stage, self.data, self.run, self.world, source)
        self.log.metric("documents", stage=self.name, step=self.progress.step, parts=documents.seconds)
        return documents

    def _checkpoints(self, initial: Checkpoint) -> StageCheckpoints:
        return StageCheckpoints(
            self.recipe,
            self.name,
            self.run,
            self.world,
            self.log,
            self.encoder,
            self.optimizer,
            self.refreshes,
            initial,
            self.scaler,
        )

    def _batch_encoder(self) -> BatchEncoder:
        in_fp32, dtype = self.precision == "fp32", DTYPES[self.precision]
        return BatchEncoder(
            self.stage,
            self.data,
            self.encoder,
            nullcontext if in_fp32 else partial(torch.autocast, self.encoder.device.type, dtype),
            self.recipe.encoding.training_tokens_per_batch,
            (self.recipe.seed, self.number),
            self.world,
            self.documents,
        )

    def _announce(self, source: Checkpoint) -> None:
        log.info(
            "stage %s: from %s, step %d, on %s, attention: %s, processes: %d",
            self.name,
            source.folder.name,
            self.progress.step,
            self.world.device,
            self.encoder.attention,
            self.world.size,
        )
        if hint := warmup_hint(self.name, self.stage):
            log.warning(hint)

    def train(self) -> Checkpoint:
        """Run the remaining steps and return the stage's result.

        When this process is interrupted, or another one is lost, the steps done so far are saved first.
        """
        try:
            self._run_steps()
        except (KeyboardInterrupt, PeerError):
            self._catch_up()
            self.checkpoints.save_interrupted(self.resumable)
            raise
        return self.checkpoints.result(self.progress)

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
        start, report = time.perf_counter(), StepReport(step, self.stage.terms)
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
            losses = term_losses(
                self.stage.terms, chunk.batch, self.anchor_sets, chunk.vectors, chunk.passages, ignored
            )
            report.add(losses, ignored, chunk.share)
            loss = weighted_sum(self.stage.terms, losses)
            scaled = loss if self.scaler is None else self.scaler.scale(loss)
            chunk.backward(scaled, self.gradients.last_backward)
        towers, max_norm = self.encoder.towers, self.stage.optimizer.max_grad_norm
        self.gradients.finish()
        scale = self._unscale()
        report.send(clip_grad_norm_(towers.parameters(), max_norm), scale)
        if not self.runs_ahead:
            report.check(self.name)
        with uninterrupted():  # at its end, weights, log and progress are those of the same step
            rate = update_weights(self.optimizer, learning_rate(self.stage, step), self.scaler)
            live = self.documents.live_metrics.pop() if self.documents else {}
            seconds = round(time.perf_counter() - start, 4)
            report.settings = {"learning_rate": rate, **live, "seconds": seconds}
            self.progress = self.resumable = replace(self.progress, step=step + 1)
            self.unread.append(report)
            finished = self._log_steps(unread=int(self.runs_ahead))
        self._tell(finished, bar)

    def _unscale(self) -> Tensor | None:
        """Divide the gradients by the scale of the loss, and return it; None without a scale."""
        if self.scaler is None:
            return None
        self.scaler.unscale_(self.optimizer)
        return self.scaler.scale(torch.ones((), device=self.encoder.device))

    def _log_steps(self, unread: int = 0) -> list[StepReport]:
        """Log the steps so far, but for the last `unread`, and return their reports.

        Raises LossNotFinite for a step whose loss or gradient is not finite.
        """
        finished = []
        while len(self.unread) > unread:
            report = self.unread.pop(0)
            report.check(self.name)
            losses, metrics = report.read()
            record = {"loss": metrics["loss"], "terms": losses} | metrics
            self.log.metric("step", stage=self.name, step=report.step, **record)
            if "skipped" in record:
                message = "stage %s, step %d is skipped: its gradients overflow in fp16, with loss scale %g"
                log.info(message, self.name, report.step, record["loss_scale"])
            finished.append(report)
        return finished

    def _tell(self, finished: Sequence[StepReport], bar: tqdm | None = None) -> None:
        """Tell the clock, the progress bar and the callbacks about steps."""
        for report in finished:
            losses, metrics = report.read()
            self.clock.stepped(report.step, metrics["seconds"])
            if bar is not None:
                ages = self.refreshes.negatives.shown_at(report.step)
                # Short enough for 80 columns; tqdm sorts keyword arguments by name, but not a mapping.
                bar.set_postfix({"loss": f"{metrics['loss']:.3f}", **ages}, refresh=False)
            for callback in self.callbacks:
                callback.on_step_end(self.name, report.step, losses, metrics)

    def _catch_up(self) -> None:
        """Wait for the device and log all steps so far, before weights are used or products adopted."""
        with uninterrupted():
            finished = self._log_steps()
        self._tell(finished)

    def _refresh(self, step: int) -> None:
        """Before step `step`: publish a checkpoint if due, request the products due from it, and adopt
        products."""
        start = time.perf_counter()
        is_due = self.refreshes.are_due(step)
        tables_before = dict(self.refreshes.negatives.table_steps)
        published = self.resumable
        save = is_due or self.checkpoints.are_due(step)
        if save:
            self._catch_up()
        checkpoint = self.checkpoints.publish(published) if save else None

        seconds: dict[str, float] = {}
        generations = self._advance(self.refreshes.tables, step, checkpoint, seconds)
        scores = self._advance(self.refreshes.dev, step, checkpoint, seconds) if self.refreshes.dev else []
        if generations or scores:
            self._catch_up()
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
            memory = {"memory_bytes": highest_peak_bytes(self.world)}
            self.log.metric("refresh", stage=self.name, step=step, **seconds, **memory)
        if checkpoint:
            in_use = set(tables_before.values())
            # On the main process; the others wait, long on a slow disk.
            self.world.on_main(lambda: self.checkpoints.prune(published, self.progress, in_use))

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
