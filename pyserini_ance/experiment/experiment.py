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
from pyserini_ance.encoders.checkpoint import start_encoder
from pyserini_ance.experiment.closing import Closing
from pyserini_ance.experiment.environment import environment
from pyserini_ance.experiment.export import export
from pyserini_ance.experiment.prepare import read_collection, retrieve_bm25, sources, tokenise
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
        """Everything, in order. The data is read and checked before the run directory is touched."""
        start = time.perf_counter()
        collection = read_collection(self.recipe)
        if resume:
            self.run.reopen(dump(self.recipe))
        else:
            self.run.create(dump(self.recipe), overwrite)
        with self._recording_the_end():
            write_json(self.run.environment, environment(self.device, collection))
            data = tokenise(self.recipe, collection)
            write_qrels(collection, self.recipe.test.split, self.run.qrels(self.recipe.test.split))
            results = self._rows(data, time.perf_counter() - start, resume)
            write_json(self.run.measures, results.as_json())
        return results

    def _rows(self, data: PreparedData, prepare_seconds: float, resume: bool) -> Results:
        closing = Closing(self.recipe, data, self.run, self.device)
        rows = [self._bm25(data, closing)] if self.recipe.bm25 else []
        initial = self.publish_untrained()
        self.run.mark("running", "the untrained encoder")
        rows.append(closing.row(UNTRAINED, initial))
        result = initial
        for name, stage in self.recipe.stages.items():
            result = self.train_stage(name, data, initial if stage.start == "initial" else result, resume)
            self.run.mark("running", f"the closing evaluation of stage {name}")
            seconds = self.log.stage_seconds(name)
            if name != list(self.recipe.stages)[-1]:
                rows.append(closing.row(name, result, **seconds))
            else:
                record, exported = export(name, result, closing, seconds)
                rows.append(record)
        shutil.rmtree(self.run.scratch, ignore_errors=True)
        return Results(self.recipe, rows, round(prepare_seconds, 1), exported)

    def _bm25(self, data: PreparedData, closing: Closing) -> dict:
        """BM25's row, and its ranking of the training queries when a source of negatives draws from it."""
        start, test = time.perf_counter(), self.recipe.test
        self.run.mark("running", "BM25")
        self.rank_by_bm25(data, {test.split: (closing.ranking(BM25), test.hits)})
        return closing.measured(BM25) or closing.measure(BM25, time.perf_counter() - start)

    def rank_by_bm25(self, data: PreparedData, outputs: dict[str, tuple[Path, int]]) -> None:
        """Write the rankings that are not there yet, in one go: {split: (file, hits)} and what sources need."""
        if any(BM25 in source.needs for source in sources(self.recipe)):
            data.run_files[BM25] = self.run.run_files / f"{BM25}.{self.recipe.train_split}.trec"
            outputs = {self.recipe.train_split: (data.run_files[BM25], self.recipe.bm25.hits), **outputs}
        missing = {split: (file, hits) for split, (file, hits) in outputs.items() if not file.exists()}
        if missing:
            retrieve_bm25(self.recipe, data.collection, missing)

    def publish_untrained(self) -> Checkpoint:
        encoder = start_encoder(self.recipe.encoder, self.recipe.seed)
        return publish_checkpoint(self.run, encoder, None, Place("initial", 0))

    def train_stage(self, name: str, data: PreparedData, start: Checkpoint, resume: bool = False) -> Checkpoint:
        """The result of a stage: of the decisions when it has ended before, else of training it."""
        ended = [d for d in self.log.decisions("stage_end") if d["stage"] == name]
        if ended:
            return Checkpoint.open(self.run.checkpoints / ended[-1]["result"])
        self.run.mark("running", f"stage {name}, step 0")
        refresher = Refresher(self.recipe, data, self.run, self.device)
        return StageTraining(self.recipe, name, data, self.run, self.accelerator, refresher.refresh).train(start, resume)

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
