"""The training loop of a stage: refresh if due, plan a batch, encode, compute losses, pass them back, update
weights."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import torch
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grad_norm_
from tqdm import tqdm

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.failures import PeerError, uninterrupted
from pyserini_ance.distributed.world import World, sum_gradients
from pyserini_ance.encoders.adapters import keep_frozen_in
from pyserini_ance.encoders.hardware import DTYPES, resolve_precision
from pyserini_ance.encoders.load_save import encoder_to_train
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.teachers.base import TeacherContext
from pyserini_ance.negatives.teachers.encoder import target_vectors
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.refresh_settings import ProductSettings
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, restore_moments
from pyserini_ance.runs.generation import Generation, PreviousStage
from pyserini_ance.runs.provenance import highest_peak_bytes
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.progress import progress_bar
from pyserini_ance.trainer.batch import anchor_sets_of, plan_batch
from pyserini_ance.trainer.callbacks import TrainerCallback
from pyserini_ance.trainer.checkpoints import StageCheckpoints
from pyserini_ance.trainer.executors import RefreshExecutor
from pyserini_ance.trainer.frozen_documents import FrozenDocuments
from pyserini_ance.trainer.objective import Counts, term_losses, weighted_sum
from pyserini_ance.trainer.optim import build_optimizer, learning_rate, set_rate
from pyserini_ance.trainer.products import queues_of
from pyserini_ance.trainer.refresh import RefreshQueue
from pyserini_ance.trainer.resume import replay_logs, resume_stage
from pyserini_ance.trainer.sharding import shard
from pyserini_ance.trainer.step import BatchEncoder
from pyserini_ance.trainer.step_report import StepReport

log = logging.getLogger(__name__)


class StageTrainer:
    """Trains one stage of a run, from the weights of `initial`, or with `resume` from its newest checkpoint.

    The constructor loads the model and, if the document tower is frozen, encodes the documents; all processes
    call it. `executor_of` chooses who makes the tables and dev scores. `callbacks` are called on the main
    process.
    """

    def __init__(
        self,
        recipe: Recipe,
        name: str,
        data: PreparedData,
        run: RunDir,
        world: World,
        executor_of: Callable[[ProductSettings], RefreshExecutor],
        initial: Checkpoint,
        resume: bool = False,
        callbacks: Sequence[TrainerCallback] = (),
    ):
        self.recipe, self.name, self.data, self.run, self.world = recipe, name, data, run, world
        self.log, self.callbacks = RunLog(run, world.is_main), tuple(callbacks) if world.is_main else ()
        self.stage: Stage = recipe.stages[name]
        self.number = list(recipe.stages).index(name)

        previous, logs = None, replay_logs(run.replay, name)
        if self.stage.uses_previous_tables or self.stage.mines_with_previous:
            previous = PreviousStage.of(recipe, run, name, world)
        queues = queues_of(run, name, self.stage, data.identity, world, executor_of, logs, previous)
        self.negatives, self.queues = queues[0], list[RefreshQueue](queues)
        resumed = resume_stage(run, name, self.queues, self.log, world) if resume else None
        self.progress, source = resumed or (TrainingProgress(name, 0), initial)
        # The progress that belongs to the weights in memory: before the refresh of the current step, which a
        # resumed run repeats.
        self.resumable = self.progress
        self.drawn_rows = data.rows_of_splits(self.stage.train_split)
        self.anchor_sets = anchor_sets_of(data.anchor_sets, self.negatives.tables.values(), self.drawn_rows)

        self.encoder = encoder_to_train(source.encoder, source.hashes, self.stage, recipe.seed, world.device)
        towers, device = self.encoder.towers.train(), self.encoder.device
        # A GPU works on a step while the host plans the next one: a step's numbers are read one step late.
        self.runs_ahead = device.type != "cpu"
        self.unread: list[StepReport] = []  # of steps whose numbers have not been read
        self.trained_terms = set(self.stage.terms)  # so far, in every step
        snapshot = Snapshot.of(source, data, recipe, run, world)
        context = TeacherContext(snapshot)
        self.targets = target_vectors(self.stage, self.encoder.dimension, context)
        if self.targets:
            self.log.metric("targets", stage=name, step=self.progress.step, origins=context.origins)
        self.documents: FrozenDocuments | None = None
        if self.stage.trainable == "query_tower":
            self.documents = FrozenDocuments(self.stage, snapshot, recipe.seed)
            self.log.metric("documents", stage=name, step=self.progress.step, parts=self.documents.seconds)
        # The main process resolves `auto` for all ranks: every rank encodes a step in the same precision.
        precision = world.on_main(lambda: resolve_precision(recipe.precision, world.device))
        keep_frozen_in(DTYPES[precision], self.encoder)
        whole, is_sharded = None, recipe.shard and world.size > 1
        if is_sharded:
            form = partial(encoder_to_train, source.encoder, source.hashes, self.stage, recipe.seed)
            whole = shard(self.encoder, self.stage, world, precision, form)
        self.optimizer = build_optimizer(towers, self.stage.optimizer)
        # Gradients too small for fp16 are scaled up with the loss; other precisions need no scale.
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
        if resumed or self.stage.keep_optimizer:
            restore_moments(source, self.optimizer, self.scaler)
        saved = self.encoder, self.optimizer, self.scaler, whole
        self.checkpoints = StageCheckpoints(recipe, name, run, world, self.log, self.queues, *saved)
        in_fp32 = precision == "fp32"
        autocast = nullcontext if in_fp32 else partial(torch.autocast, device.type, DTYPES[precision])
        budget = recipe.encoding.tokens_per_batch
        key = recipe.seed, self.number
        self.batch_encoder = BatchEncoder(
            self.stage, data, self.encoder, autocast, budget, key, world, self.documents, is_sharded
        )
        log.info(
            f"stage {name}: from {source.folder.name}, step {self.progress.step}, on {world.device}, "
            f"attention: {self.encoder.attention}, processes: {world.size}"
        )
        world.barrier()  # loading may take longer on one process than on another

    def train(self) -> Checkpoint:
        """Run the remaining steps and return the stage's result.

        When this process is interrupted, or another one is lost, the steps done so far are saved first.
        """
        bar = progress_bar(
            desc=f"train {self.name}",
            unit="step",
            smoothing=0,  # the time left follows from the mean of all steps so far, refreshes included
            total=self.stage.steps,
            initial=self.progress.step,
            disable=not self.world.is_main,
        )
        try:
            with bar:
                for step in range(self.progress.step, self.stage.steps + 1):
                    self._before_step(step)
                    if step == self.stage.steps:
                        break
                    self._train_step(step, bar)
                    bar.update()
        except (KeyboardInterrupt, PeerError):
            self._report_steps()
            self.checkpoints.save_interrupted(self.resumable)
            raise
        return self.checkpoints.result(self.progress)

    def _train_step(self, step: int, bar: tqdm) -> None:
        start, report = time.perf_counter(), StepReport(step, self.stage.terms)
        terms, towers = self.stage.terms, self.encoder.towers
        anchor_sets = self.anchor_sets
        negatives = self.negatives.tables, self.negatives.teacher_scores, self.negatives.adopted_step
        batch = plan_batch(self.stage, self.number, step, self.recipe.seed, anchor_sets, *negatives)
        for chunk in self.batch_encoder.encode(batch, step, anchor_sets["query"].known_positives):
            counts = Counts()
            losses = term_losses(
                terms, chunk.batch, anchor_sets, chunk.vectors, chunk.passages, counts, towers, self.targets
            )
            report.add(losses, counts, chunk.share)
            chunk.backward(self.scaler.scale(weighted_sum(terms, losses)))
        parameters = list(towers.parameters())
        sum_gradients([p for p in parameters if not isinstance(p, DTensor)], self.world)  # those are sums
        self.scaler.unscale_(self.optimizer)
        norm = clip_grad_norm_(parameters, self.stage.optimizer.max_grad_norm)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        scale = self.scaler.scale(torch.ones_like(norm)) if self.scaler.is_enabled() else None
        report.send(norm, scale)
        if not self.runs_ahead:
            report.read(self.name)  # a loss that is not finite must not reach the weights
        with uninterrupted():  # at its end, weights, log and progress are those of the same step
            rate = learning_rate(self.stage, step)
            set_rate(self.optimizer, rate)
            self.scaler.step(self.optimizer)  # skipped if a gradient is not finite in fp16
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
            live = self.documents.pop_metrics() if self.documents else {}
            seconds = round(time.perf_counter() - start, 4)
            report.settings = {"learning_rate": rate, **live, "seconds": seconds}
            self.progress = self.resumable = replace(self.progress, step=step + 1)
            self.unread.append(report)
            self._report_steps(bar, unread=int(self.runs_ahead))

    def _report_steps(self, bar: tqdm | None = None, unread: int = 0) -> None:
        """Log the steps so far, but for the last `unread`, and tell the progress bar and the callbacks.

        Without `unread` it waits for the device: before weights are saved or products adopted. Raises
        LossNotFinite for a step whose loss or gradient is not finite.
        """
        with uninterrupted():
            while len(self.unread) > unread:
                report = self.unread.pop(0)
                losses, metrics = report.read(self.name)
                record = {"loss": metrics["loss"], "terms": losses} | metrics
                self.log.metric("step", stage=self.name, step=report.step, **record)
                if "skipped" in record:
                    log.info(
                        f"stage {self.name}, step {report.step} is skipped: its gradients overflow in fp16, "
                        f"with loss scale {record['loss_scale']:g}"
                    )
                for name in sorted(self.trained_terms & set(record.get("without_negatives", ()))):
                    self.trained_terms.remove(name)
                    log.warning(
                        f"stage {self.name}, step {report.step}: none of the {self.stage.batch_queries} "
                        f"anchors of term {name} has a positive and a negative to compare, so that the term "
                        "trains nothing; all have the same positives, masks hide the negatives, or the "
                        "teacher scores neither. Later steps are in metrics.jsonl (without_negatives)"
                    )
                if bar is not None:
                    shown = {"loss": f"{metrics['loss']:.3f}"}
                    if (newest := self.negatives.newest) is not None:  # by the step of its checkpoint
                        shown |= {"gen": str(newest), "age": str(report.step - newest)}
                    # Short enough for 80 columns; tqdm sorts keyword arguments by name, but not a mapping.
                    bar.set_postfix(shown, refresh=False)
                for callback in self.callbacks:
                    callback.on_step_end(self.name, report.step, losses, metrics)

    def _before_step(self, step: int) -> None:
        """Publish a checkpoint if one is due before step `step`, request the products due from it, adopt
        those that are due now, and remove what is no longer needed."""
        start = time.perf_counter()
        is_due = any(queue.is_due(step) for queue in self.queues)
        tables_before, published = dict(self.negatives.table_steps), self.resumable
        checkpoint: Checkpoint | None = None
        if is_due or self.stage.checkpoint_is_due(step):
            self._report_steps()
            checkpoint = self.checkpoints.publish(published)

        seconds, adopted = dict[str, float](), {}
        for queue in self.queues:
            begun = time.perf_counter()
            weights = checkpoint.weights if checkpoint and queue.is_due(step) else None
            adopted[queue.kind] = queue.advance(step, weights)
            seconds[f"{queue.kind}_seconds"] = round(time.perf_counter() - begun, 3)
        tables, scores = adopted["tables"], adopted.get("dev", [])
        if tables or scores:
            self._use(step, tables, scores)
        if is_due or scores or tables_before != self.negatives.table_steps:
            seconds = {"seconds": round(time.perf_counter() - start, 3), **seconds}
            memory = {"memory_bytes": highest_peak_bytes(self.world)}
            self.log.metric("refresh", stage=self.name, step=step, **seconds, **memory)
        if checkpoint:
            # On the main process; the others wait, long on a slow disk.
            self.world.on_main(lambda: self.checkpoints.prune(published, self.progress))

    def _use(self, step: int, tables: list[tuple[int, Generation]], scores: list[tuple[int, float]]) -> None:
        """From step `step` on, draw from the adopted tables, and know the best checkpoint by the scores; tell
        the callbacks. Each product comes with the step of its checkpoint."""
        self._report_steps()
        if tables:
            in_use = self.negatives.tables.values()
            self.anchor_sets = anchor_sets_of(self.data.anchor_sets, in_use, self.drawn_rows)
        for _, generation in tables:
            for callback in self.callbacks:
                callback.on_refresh(self.name, step, generation)
        for at, score in scores:
            self.progress = self.progress.after_evaluation(at, score)
            if self.progress.best_step == at:
                self.log.decide("best", stage=self.name, step=step, checkpoint_step=at, value=score)
            for callback in self.callbacks:
                assert self.stage.evaluate is not None, "there is a score"
                callback.on_dev_measure(self.name, at, self.stage.evaluate.measure, score)
        self.world.barrier()  # callbacks may take long
