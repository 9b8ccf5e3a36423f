"""Run one experiment: prepare the data, rank by BM25, train each stage, export the model and fill the results
table."""

import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.trec import write_qrels
from pyserini_ance.distributed.failures import begin_shutdown
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.evaluation.tables import BM25, UNTRAINED
from pyserini_ance.pipeline import bm25_rankings, initial_weights, model_export, preparation
from pyserini_ance.pipeline.data_checks import data_warnings
from pyserini_ance.pipeline.final_evaluator import FinalEvaluator, fusion_command
from pyserini_ance.pipeline.refresher_process import refresh_command, refresher_subprocess
from pyserini_ance.pipeline.results import Run, results_record
from pyserini_ance.pipeline.teacher_training import train_teacher_of_run
from pyserini_ance.recipe.components import absolute
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.refresh_settings import ProductSettings
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.checkpoint import Checkpoint, clean_up_finished, drop_moments, publish_checkpoint
from pyserini_ance.runs.provenance import environment, highest_peak_bytes
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_json, write_whole
from pyserini_ance.storage.locks import check_file_system
from pyserini_ance.storage.publish import check_cache
from pyserini_ance.trainer.callbacks import TrainerCallback
from pyserini_ance.trainer.executors import TIMEOUT_SECONDS, AsyncExecutor, SyncExecutor
from pyserini_ance.trainer.resume import check_same_run, read_replay
from pyserini_ance.trainer.trackers import tracking
from pyserini_ance.trainer.trainer import StageTrainer

log = logging.getLogger(__name__)
_one_training = threading.Lock()


@contextmanager
def only_training(folder: Path) -> Iterator[None]:
    """Train the run in `folder`, and what it requires, inside the block.

    Raises RuntimeError if this process trains already, in another thread or around a callback: two trainings
    would share torch's random generators and number of threads, and accelerate's state.
    """
    if not _one_training.acquire(blocking=False):
        raise RuntimeError(
            f"{folder} is not trained: this process trains a run already, and two trainings in one process "
            "would change each other's weights. Wait until it ends, start another process, or train several "
            "runs with `pyserini-ance train --grid ... --jobs N`"
        )
    try:
        yield
    finally:
        _one_training.release()


def train(
    recipe: Recipe,
    folder: Path,
    overwrite: bool = False,
    resume: bool = False,
    replay: Path | None = None,
    callbacks: Sequence[TrainerCallback] = (),
) -> Run | None:
    """Run the experiment on all processes that torchrun started, or on this one alone.

    Returns the run on the main process, None on the others. The parameters are those of `Experiment.run`;
    `callbacks` are called during all stages.
    """
    with World.join(recipe.device).session() as world:
        return Experiment(recipe, folder, world, callbacks).run(overwrite, resume, replay)


class Experiment:
    """One recipe in one run directory.

    Completed work of a stopped run is reused, never repeated. All processes of `world` make the same calls;
    the main process writes.
    """

    def __init__(self, recipe: Recipe, folder: Path, world: World, callbacks: Sequence[TrainerCallback] = ()):
        self.recipe, self.callbacks = recipe, tuple(callbacks)
        self.run_dir = RunDir(folder)
        self.world = world
        if recipe.threads:
            torch.set_num_threads(recipe.threads)
        check_precision(recipe)
        self.log = RunLog(self.run_dir, self.world.is_main)
        self.previous_refresher: dict[str, Any] | None = None  # the record of an earlier attempt's
        self.subprocess_failure: Callable[[], str | None] = lambda: None  # why this attempt's has ended

    def run(self, overwrite: bool = False, resume: bool = False, replay: Path | None = None) -> Run | None:
        """Run everything in order; return the run on the main process, None on the others.

        Tools, data and encoder are checked before the run directory is changed. `overwrite` replaces an
        existing run, `resume` continues it, `replay` is the `decisions.jsonl` of a run whose adoptions are
        repeated.
        """
        start = time.perf_counter()
        with ExitStack() as stack:
            origins = self.world.on_main(lambda: self._check(resume))
            data = preparation.prepare(self.recipe, self.world)
            hashes = self.world.on_main(lambda: self._begin(data, origins, stack, overwrite, resume, replay))
            prepare_seconds = time.perf_counter() - start
            folders = {name: self.run_dir.checkpoint(name, 0) for name in hashes}
            initial = {name: Checkpoint(folders[name], *of_towers) for name, of_towers in hashes.items()}
            untrained, tested = initial[initial_weights.INITIAL.stage], self.recipe.final_evaluation.split
            self.world.on_main(lambda: model_export.check_form(untrained.encoder, data, tested))
            rows, exported = self._train_and_evaluate(data, initial, resume)
            # An earlier, killed attempt has not recorded its duration.
            total = "everything since --resume" if resume else "everything"
            spent = {"data and tokens": prepare_seconds, total: time.perf_counter() - start}
            seconds = {phase: round(value, 1) for phase, value in spent.items()}
            memory = highest_peak_bytes(self.world)

            def write() -> None:
                record = results_record(
                    self.recipe, data.collection, self.log, rows, seconds, memory, exported
                )
                if difference := exported["differences"][model_export.SENTENCE_TRANSFORMERS]:
                    model_export.Difference(**difference).check(self.run_dir.model)
                write_json(self.run_dir.measures, record)
                self.run_dir.trainer.mark("running", "the end")

            self.world.on_main(write)
        return Run(self.run_dir.folder) if self.world.is_main else None

    def _check(self, resume: bool) -> dict[str, dict[str, Any]]:
        """Raise what would stop the run before anything is read: missing tools or initial weights, a file
        system without locks, another process that trains the run. Return the initial weights' origins."""
        preparation.check_tools(self.recipe)
        check_file_system(self.run_dir.folder)
        cache = self.recipe.cache
        if not cache.exists() or os.access(cache, os.W_OK):  # a complete one may be read-only
            check_cache(cache)
            check_file_system(cache)
        if resume:
            self.run_dir.trainer.check_free()
        return initial_weights.find_origins(self.recipe, self.run_dir, resume)

    def _begin(
        self,
        data: PreparedData,
        origins: Mapping[str, dict[str, Any]],
        stack: ExitStack,
        overwrite: bool,
        resume: bool,
        replay: Path | None,
    ) -> dict[str, tuple[str, str]]:
        """Open the run directory on the main process, and publish the initial checkpoints.

        `stack` holds it, records how the run ends, and ends the refresher, if the recipe needs one. Returns
        the weight hashes of each initial checkpoint, the untrained encoder first.
        """
        if resume:
            check_same_run(self.run_dir, self.recipe, data.collection)
        for text in data_warnings(self.recipe, data.collection):
            log.warning(text)
        untrained = initial_encoder(self.recipe.encoder, self.recipe.seed)
        preparation.check_encoder(self.recipe, untrained)
        encoders = {}
        for name, origin in origins.items():
            folder = Path(origin["encoder"])
            encoders[name] = initial_weights.open_origin(self.recipe, self.run_dir, name, folder, untrained)
        provenance = environment(self.world.device, self.world.size, data.collection)
        provenance |= {"initial_weights": origins}
        run = self.run_dir
        decisions = read_replay(replay, self.recipe) if replay else None
        if not resume:
            run.check_creatable(overwrite)
            run.folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(run.trainer.held())
        if resume:
            run.reopen()
            self.previous_refresher = run.refresher.read()
        else:
            run.create(dump(absolute(self.recipe)), overwrite)
            write_json(run.environment, provenance)
            if decisions is not None:
                write_whole(run.replay, decisions)
        # The refresher subprocess may work beyond the end of the run, whose record it waits for.
        stack.callback(clean_up_finished, run, self.recipe)
        self.subprocess_failure = stack.enter_context(refresher_subprocess(self.recipe, run))
        stack.enter_context(run.trainer.recording_the_end())
        stack.enter_context(self.advising())
        if resume:
            self.log.decide("resume", environment=provenance)
        stack.enter_context(tracking(self.recipe, run))
        cut = ["dev"] if preparation.recipe_data(self.recipe).hold_out else []  # from the training queries
        for split in dict.fromkeys([*self.recipe.final_evaluation.split, *cut]):
            if data.collection.split(split).is_judged:
                write_qrels(self.run_dir.qrels(split), data.collection.judgments(split))
        external = initial_weights.publish_initial_weights(self.recipe, self.run_dir, encoders)
        published = publish_checkpoint(self.run_dir, untrained, None, initial_weights.INITIAL)
        return {initial_weights.INITIAL.stage: published.hashes, **external}

    @contextmanager
    def advising(self) -> Iterator[None]:
        """After an error, keep its traceback and log how to go on."""
        try:
            yield
        except BaseException as error:
            begin_shutdown()
            try:
                write_whole(self.run_dir.error, traceback.format_exc())
            except OSError as second:  # a full disk
                log.error("cannot record the error: %s", second)
            cure = f"continue with: {self.run_dir.resume_command(self.world.size)}"
            if getattr(error, "needs_new_recipe", False):
                folder = quote(str(self.run_dir.folder))
                cure = f"change the recipe and start again with: --output {folder} --overwrite"
            status = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            log.error("%s at %s; %s", status, self.run_dir.trainer.where, cure)
            raise

    def _train_and_evaluate(
        self, data: PreparedData, initial: dict[str, Checkpoint], resume: bool
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Train and evaluate all stages and export the last one's result; return the rows of the results
        table and how to search with the exported model.

        BM25 and the `initial` checkpoints come first, to show the gain of training, and the hybrid with BM25
        last. `final_evaluation.rows` may leave out all rows but that of the last stage.
        """
        wanted = self.recipe.final_evaluation.rows
        evaluator = FinalEvaluator(self.recipe, data, self.run_dir, self.world)
        rows = self._bm25(data, evaluator) if self.recipe.bm25 else []
        rows += self._evaluate_starts(initial, evaluator)

        def seconds_of(stage: str) -> dict[str, Any]:
            return self.world.on_main(lambda: self.log.stage_seconds(stage))

        results: dict[str, Checkpoint] = {}
        last = list(self.recipe.stages)[-1]
        for name in self.recipe.stages:
            checkpoint = initial_weights.starting_checkpoint(self.recipe, name, initial, results)
            results[name] = self.train_stage(name, data, checkpoint, resume)
            self.train_teachers_after(name, data, results[name])
            self.world.barrier()  # another process may still restore moments, if no step was left
            self.world.on_main(lambda: drop_moments(self.run_dir, self.recipe, results))
            if name != last and "stages" in wanted:
                self._mark(f"the final evaluation of stage {name}")
                rows.append(evaluator.evaluate_row(name, results[name], **seconds_of(name)))
                rows += evaluator.index_rows(name)
        self._mark(f"the final evaluation of stage {last}")
        record, exported = model_export.export(last, results[last], evaluator, seconds_of(last))
        if self.recipe.stages[last].ranks_training_queries:
            self._mark(f"the training queries after stage {last}")
            evaluator.rank_training_queries(last, results[last])
        rows += [record, *evaluator.index_rows(last)]
        if self.recipe.bm25 and "hybrid" in wanted:
            self._mark("the hybrid with BM25")
            test = self.recipe.final_evaluation
            rows.append(evaluator.hybrid_row(last))
            exported["hybrid"] = fusion_command(self.run_dir, test.split, test.hits)
        return rows, exported

    def _evaluate_starts(
        self, initial: Mapping[str, Checkpoint], evaluator: FinalEvaluator
    ) -> list[dict[str, Any]]:
        """The rows of the untrained encoder and of the external initial weights, as far as wanted."""
        wanted, external = self.recipe.final_evaluation.rows, self.recipe.external_starts
        rows: list[dict[str, Any]] = []
        for name, checkpoint in initial.items():
            if ("start" if name in external else "untrained") in wanted:
                row = name if name in external else UNTRAINED
                more = {"init_from": str(external[name])} if name in external else {}
                self._mark(f"the {row} encoder")
                rows += [evaluator.evaluate_row(row, checkpoint, **more), *evaluator.index_rows(row)]
        return rows

    def _mark(self, where: str) -> None:
        if self.world.is_main:
            self.run_dir.trainer.mark("running", where)

    def _bm25(self, data: PreparedData, evaluator: FinalEvaluator) -> list[dict[str, Any]]:
        """The rows of BM25 and, if the recipe has it, RM3; also BM25's ranking of the training queries if a
        source needs it.

        All rankings are made in one call. The first row has its seconds.
        """
        start = time.perf_counter()
        self._mark("BM25")
        rows = bm25_rankings.bm25_for_evaluation(self.recipe)
        outputs = {self.run_dir.ranking(row, one.split): one for row, each in rows.items() for one in each}
        self.rank_by_bm25(data, outputs)
        seconds = time.perf_counter() - start
        return [
            evaluator.read_row(row) or evaluator.measure(row, None if place else seconds)
            for place, row in enumerate(rows)
        ]

    def rank_by_bm25(self, data: PreparedData, outputs: Mapping[Path, bm25_rankings.Bm25Request]) -> None:
        """Write the missing ones of `outputs` and the ranking that negatives are drawn from, in one call."""
        if request := bm25_rankings.bm25_for_training(self.recipe):
            data.training_rankings[BM25] = self.run_dir.bm25_negatives(request.split)
            outputs = {data.training_rankings[BM25]: request, **outputs}
        self.world.on_main(lambda: bm25_rankings.write_rankings(self.recipe, data.collection, outputs))

    def train_teachers_after(self, stage: str, data: PreparedData, result: Checkpoint) -> None:
        """Train the recipe's cross-encoders after `stage`, whose `result` finds their negatives."""
        for name in self.recipe.teachers_after(stage):
            self._mark(f"teacher {name}")
            train_teacher_of_run(self.recipe, name, data, self.run_dir, result, self.world)

    def train_stage(
        self, name: str, data: PreparedData, initial: Checkpoint, resume: bool = False
    ) -> Checkpoint:
        """The resulting checkpoint of a stage. A stage that has already ended is not trained again."""
        ended = self.world.on_main(lambda: self.log.decisions("stage_end", name))
        if ended:
            return Checkpoint.open(self.run_dir.checkpoints / ended[-1]["result"])
        self._mark(f"stage {name}, step 0")
        sync_executor = SyncExecutor(Refresher(self.recipe, data, self.run_dir, self.world).make)
        how = TIMEOUT_SECONDS[self.recipe.refresher], refresh_command(self.recipe, self.run_dir), self.world
        async_executor = AsyncExecutor(self.run_dir, *how, self.previous_refresher, self.subprocess_failure)
        async_executor.reset()

        def executor_of(product: ProductSettings) -> SyncExecutor | AsyncExecutor:
            return sync_executor if product.mode == "sync" else async_executor

        return StageTrainer(
            self.recipe, name, data, self.run_dir, self.world, executor_of, initial, resume, self.callbacks
        ).train()


def check_precision(recipe: Recipe) -> None:
    """Raise ValueError for `precision: fp16` without a GPU."""
    if recipe.precision == "fp16" and (recipe.device == "cpu" or not torch.cuda.is_available()):
        raise ValueError(
            "precision is fp16, but training is on the CPU, where fp16 is slower than fp32; use precision: "
            "auto, bf16 or fp32"
        )
