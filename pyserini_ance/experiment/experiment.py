"""The main job: data, BM25, the untrained encoder, each stage, export, and the closing table."""

import logging
import shutil
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from accelerate import Accelerator

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import start_encoder
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.experiment.closing import Closing
from pyserini_ance.experiment.environment import environment
from pyserini_ance.experiment.export import export
from pyserini_ance.experiment.prepare import check_tools, read_collection, retrieve_bm25, sources, tokenise
from pyserini_ance.experiment.resume import refuse_other_run
from pyserini_ance.experiment.results import Results, write_qrels
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.checkpoint import Checkpoint, Place, publish_checkpoint
from pyserini_ance.runs.log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_json
from pyserini_ance.trainer.trainer import StageTraining
from pyserini_ance.vectors.precision import resolve_precision

log = logging.getLogger(__name__)
BM25, UNTRAINED = "bm25", "untrained"


class Experiment:
    """One recipe in one run directory. What a stopped run has completed is taken over, never done twice."""

    def __init__(self, recipe: Recipe, folder: Path):
        self.recipe, self.run = recipe, RunDir(folder)
        self.log = RunLog(self.run)
        self.accelerator = accelerator_of(recipe)
        self.device = str(self.accelerator.device)

    def conduct(self, overwrite: bool = False, resume: bool = False) -> Results:
        """Everything, in order. Tools, data and encoder are checked before the run directory is touched."""
        start = time.perf_counter()
        check_tools(self.recipe)
        data = tokenise(self.recipe, read_collection(self.recipe))
        untrained = start_encoder(self.recipe.encoder, self.recipe.seed)
        self._open(data, overwrite, resume)
        with self._recording_the_end():
            write_qrels(data.collection, self.recipe.test.split, self.run.qrels(self.recipe.test.split))
            prepare_seconds = time.perf_counter() - start
            rows, exported = self._rows(data, untrained, resume)
            seconds = {"data and tokens": round(prepare_seconds, 1), "everything": round(time.perf_counter() - start, 1)}
            results = Results(self.recipe, rows, seconds, exported)
            write_json(self.run.measures, results.as_json())
        return results

    def _open(self, data: PreparedData, overwrite: bool, resume: bool) -> None:
        now = environment(self.device, data.collection)
        if not resume:
            self.run.create(dump(self.recipe), overwrite)
            write_json(self.run.environment, now)
            return
        refuse_other_run(self.run, self.recipe, data.collection)
        self.run.reopen()
        self.log.decide("resume", environment=now)

    def _rows(self, data: PreparedData, untrained: Encoder, resume: bool) -> tuple[list[dict], dict]:
        closing = Closing(self.recipe, data, self.run, self.device)
        rows = [self._bm25(data, closing)] if self.recipe.bm25 else []
        result = initial = self.publish_untrained(untrained)
        self.run.mark("running", "the untrained encoder")
        rows.append(closing.row(UNTRAINED, initial))
        for name, stage in self.recipe.stages.items():
            result = self.train_stage(name, data, initial if stage.start == "initial" else result, resume)
            self.run.mark("running", f"the closing evaluation of stage {name}")
            seconds = self.log.stage_seconds(name)
            if name != list(self.recipe.stages)[-1]:
                rows.append(closing.row(name, result, **seconds))
        record, exported = export(name, result, closing, seconds)
        shutil.rmtree(self.run.scratch, ignore_errors=True)
        return [*rows, record], exported

    def _bm25(self, data: PreparedData, closing: Closing) -> dict:
        """BM25's row, and its ranking of the training queries when a source of negatives draws from it."""
        start, test = time.perf_counter(), self.recipe.test
        self.run.mark("running", "BM25")
        self.rank_by_bm25(data, [(test.split, closing.ranking(BM25), test.hits)])
        return closing.measured(BM25) or closing.measure(BM25, time.perf_counter() - start)

    def rank_by_bm25(self, data: PreparedData, outputs: list[tuple[str, Path, int]]) -> None:
        """Write the rankings (split, file, hits) that are not there yet, and what sources need, in one go."""
        if any(BM25 in source.needs for source in sources(self.recipe)):
            data.run_files[BM25] = self.run.run_files / f"{BM25}.{self.recipe.train_split}.negatives.trec"
            outputs = [(self.recipe.train_split, data.run_files[BM25], self.recipe.bm25.hits), *outputs]
        if missing := [output for output in outputs if not output[1].exists()]:
            retrieve_bm25(self.recipe, data.collection, missing)

    def publish_untrained(self, encoder: Encoder) -> Checkpoint:
        return publish_checkpoint(self.run, encoder, None, Place("initial", 0))

    def train_stage(self, name: str, data: PreparedData, start: Checkpoint, resume: bool = False) -> Checkpoint:
        """The result of a stage: of the decisions when it has ended before, else of training it."""
        ended = [d for d in self.log.decisions("stage_end") if d["stage"] == name]
        if ended:
            return Checkpoint.open(self.run.checkpoints / ended[-1]["result"])
        self.run.mark("running", f"stage {name}, step 0")
        refresher = Refresher(self.recipe, data, self.run, self.device)
        return StageTraining(self.recipe, name, data, self.run, self.accelerator, refresher.refresh, World()).train(start, resume)

    @contextmanager
    def _recording_the_end(self) -> Iterator[None]:
        """However the run ends, its folder says so and where; the last word of a full disk may be lost, its place is not."""
        try:
            yield
        except BaseException as error:
            where = self.run.read_state()["where"]
            status = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            try:
                self.run.mark(status, where, reason=str(error) or type(error).__name__)
                self.run.error.write_text(traceback.format_exc(), encoding="utf-8")
            except OSError as second:
                log.error("could not record the end in %s: %s", self.run.state, second)
            log.error("%s at %s; go on with: --output %s --resume", status, where, self.run.folder)
            raise
        self.run.mark("finished", "the end")


def accelerator_of(recipe: Recipe) -> Accelerator:
    if recipe.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: cuda, but torch finds no GPU here; see python -m pyserini_ance.doctor, or use device: auto")
    precision = resolve_precision(recipe.precision, recipe.device)
    return Accelerator(cpu=recipe.device == "cpu", mixed_precision="bf16" if precision == "bf16" else "no")
