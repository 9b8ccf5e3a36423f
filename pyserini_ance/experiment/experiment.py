"""The main job: data, BM25, what stages start from, each stage, export, and the closing table."""

import logging
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from accelerate import Accelerator

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import start_encoder
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.experiment.bm25 import Wanted, for_closing, for_training, write_rankings
from pyserini_ance.experiment.child import refresh_command, refresher_beside
from pyserini_ance.experiment.closing import Closing
from pyserini_ance.experiment.environment import environment
from pyserini_ance.experiment.export import export
from pyserini_ance.experiment.prepare import check_indexes, check_tools, prepare
from pyserini_ance.experiment.replay import read_replay, replay_scripts
from pyserini_ance.experiment.results import Results, write_qrels
from pyserini_ance.experiment.resume import refuse_other_run
from pyserini_ance.experiment.starts import Starts
from pyserini_ance.measures.compare import BM25, BM25_RM3, UNTRAINED
from pyserini_ance.recipe.load import dump
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.products import Product
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.checkpoint import Checkpoint, Place, publish_checkpoint
from pyserini_ance.runs.log import RunLog
from pyserini_ance.runs.retention import prune_stage
from pyserini_ance.runs.rundir import RunDir, step_of
from pyserini_ance.storage.files import write_json, write_whole
from pyserini_ance.storage.lease import sweep_leases
from pyserini_ance.trainer.desks import Background, Inline
from pyserini_ance.trainer.trainer import StageTraining
from pyserini_ance.vectors.precision import resolve_precision

log = logging.getLogger(__name__)
INITIAL = Place("initial", 0)


def train(recipe: Recipe, folder: Path, overwrite: bool = False, resume: bool = False, replay: Path | None = None) -> Results | None:
    """Conduct the experiment with all processes that torchrun started, or with this one; the results on the first."""
    with World.join(recipe.device).guarding() as world:
        return Experiment(recipe, folder, world).conduct(overwrite, resume, replay)


class Experiment:
    """One recipe in one run directory. What a stopped run has completed is taken over, never done twice.

    Every process of `world` conducts it; the first writes.
    """

    def __init__(self, recipe: Recipe, folder: Path, world: World):
        self.recipe, self.run, self.world, self.device = recipe, RunDir(folder), world, world.device
        if recipe.threads:
            torch.set_num_threads(recipe.threads)
        # What `auto` means on the first process, for all: a step is one step, wherever its texts are encoded.
        precision = world.once(lambda: resolve_precision(recipe.precision, recipe.device))
        self.accelerator = accelerator_of(recipe.model_copy(update={"precision": precision}))
        self.log = RunLog(self.run, self.world.is_main)
        self.former_refresher: dict | None = None

    def conduct(self, overwrite: bool = False, resume: bool = False, replay: Path | None = None) -> Results | None:
        """Everything, in order; the results on the first process.

        Tools, data and encoder are checked before the run directory is touched. `replay` names the decisions of a run to repeat.
        """
        start = time.perf_counter()
        with ExitStack() as held:
            self.world.once(lambda: check_tools(self.recipe))
            data = prepare(self.recipe, self.world)
            hashes = self.world.once(lambda: self._begin(data, held, overwrite, resume, replay))
            prepare_seconds = time.perf_counter() - start
            rows, exported = self._rows(data, {name: self.initial(name, of_name) for name, of_name in hashes.items()}, resume)
            everything = "everything since --resume" if resume else "everything"  # what was killed before has left no seconds of its end
            seconds = {"data and tokens": round(prepare_seconds, 1), everything: round(time.perf_counter() - start, 1)}
            results = Results(self.recipe, rows, seconds, exported)
            self.world.once(lambda: write_json(self.run.measures, results.as_json()))
        return results if self.world.is_main else None

    def _begin(self, data: PreparedData, held: ExitStack, overwrite: bool, resume: bool, replay: Path | None) -> dict[str, tuple[str, str]]:
        """On the first process: open the run directory with what is known before training; hashes of what stages may start from."""
        if resume:
            refuse_other_run(self.run, self.recipe, data.collection)
        untrained = start_encoder(self.recipe.encoder, self.recipe.seed)
        check_indexes(self.recipe, untrained.dimension)
        starts = Starts.read(self.recipe, self.run, untrained, resume)
        now = {**environment(self.device, self.world.size, data.collection), "starts": starts.as_json()}
        self._open(now, held, overwrite, resume, replay)
        for split in map(data.collection.split, self.recipe.test.split):
            if split.is_judged:
                write_qrels(data.collection, split.name, self.run.qrels(split.name))
        return {INITIAL.stage: self.publish_untrained(untrained), **starts.publish()}

    def _open(self, now: dict, held: ExitStack, overwrite: bool, resume: bool, replay: Path | None) -> None:
        """Take the run directory, until `held` is closed, and start a refresher where the recipe wants one beside."""
        if resume:
            self.run.reopen()
            self.former_refresher = self.run.refresher.read()
        else:
            decisions = read_replay(replay, self.recipe) if replay else None
            self.run.create(dump(self.recipe), overwrite)
            write_json(self.run.environment, now)
            if decisions is not None:
                write_whole(self.run.replay, decisions)
        held.enter_context(refresher_beside(self.recipe, self.run))
        held.enter_context(self.run.held())
        held.enter_context(self._recording_the_end())
        if resume:
            self.log.decide("resume", environment=now)

    def _rows(self, data: PreparedData, starts: dict[str, Checkpoint], resume: bool) -> tuple[list[dict], dict]:
        """`starts`: the untrained encoder, then what was made before the run. Each has its row, so that what training gained is seen."""
        closing = Closing(self.recipe, data, self.run, self.device, self.world)
        rows = self._bm25(data, closing) if self.recipe.bm25 else []
        outside = self.recipe.outside_starts
        for name, start in starts.items():
            row, more = (name, {"start": str(outside[name])}) if name in outside else (UNTRAINED, {})
            self._mark(f"the {row} encoder")
            rows += [closing.row(row, start, **more), *closing.by_index(row)]
        results: dict[str, Checkpoint] = {}
        for name, stage in self.recipe.stages.items():
            results[name] = result = self.train_stage(name, data, self._start_of(stage, starts, results), resume)
            self._mark(f"the closing evaluation of stage {name}")
            seconds = self.world.once(lambda name=name: self.log.stage_seconds(name))
            if name != list(self.recipe.stages)[-1]:
                rows += [closing.row(name, result, **seconds), *closing.by_index(name)]
        record, exported = export(name, result, closing, seconds)
        if stage.ranks_training_queries:
            self._mark(f"the training queries after stage {name}")
            closing.rank_training_queries(name, result)
        self.world.once(self._clear_up)
        return [*rows, record, *closing.by_index(name)], exported

    def _start_of(self, stage: Stage, starts: dict[str, Checkpoint], results: dict[str, Checkpoint]) -> Checkpoint:
        if stage.starts_outside:
            return next(starts[name] for name, start in self.recipe.outside_starts.items() if start == stage.start)
        if stage.start == "initial" or not results:
            return starts[INITIAL.stage]
        return list(results.values())[-1] if stage.start == "previous" else results[stage.start.stage]

    def _clear_up(self) -> None:
        """What was still read when its stage ended, and vectors."""
        for ended in self.log.decisions("stage_end"):
            result, tables = step_of(ended["result"]), [d["of"] for d in self.log.decisions("adopt") if d["stage"] == ended["stage"]]
            prune_stage(self.run, ended["stage"], self.recipe.keep, {result}, set(), set(tables[-1:]))
        for room in (self.run.checkpoints, self.run.negatives, self.run.scratch):
            sweep_leases(room)

    def _mark(self, where: str) -> None:
        if self.world.is_main:
            self.run.mark("running", where)

    def _bm25(self, data: PreparedData, closing: Closing) -> list[dict]:
        """BM25's rows, and its ranking of the training queries when a source needs it. All are made in one go, and the seconds of all
        are the first row's.
        """
        start = time.perf_counter()
        self._mark("BM25")
        names = [BM25, BM25_RM3] if self.recipe.bm25.rm3 else [BM25]
        self.rank_by_bm25(data, {self.run.ranking(BM25_RM3 if one.rm3 else BM25, one.split): one for one in for_closing(self.recipe)})
        seconds = [time.perf_counter() - start, None]
        return [closing.measured(row) or closing.measure(row, of_row) for row, of_row in zip(names, seconds, strict=False)]

    def rank_by_bm25(self, data: PreparedData, outputs: Mapping[Path, Wanted]) -> None:
        """Write the rankings that are not there yet, and what sources need, in one go."""
        if wanted := for_training(self.recipe):
            data.run_files[BM25] = self.run.bm25_negatives(wanted.split)
            outputs = {data.run_files[BM25]: wanted, **outputs}
        self.world.once(lambda: write_rankings(self.recipe, data.collection, outputs))

    def publish_untrained(self, encoder: Encoder) -> tuple[str, str]:
        """On the first process: the checkpoint before all training; its towers' hashes."""
        return publish_checkpoint(self.run, encoder, None, INITIAL).hashes

    def initial(self, name: str, hashes: Sequence[str]) -> Checkpoint:
        """A checkpoint that this run has not trained."""
        return Checkpoint(self.run.checkpoint(name, 0), *hashes)

    def train_stage(self, name: str, data: PreparedData, start: Checkpoint, resume: bool = False) -> Checkpoint:
        """The result of a stage: of the decisions when it has ended before, else of training it."""
        ended = self.world.once(lambda: [d for d in self.log.decisions("stage_end") if d["stage"] == name])
        if ended:
            return Checkpoint.open(self.run.checkpoints / ended[-1]["result"])
        self._mark(f"stage {name}, step 0")
        inline = Inline(Refresher(self.recipe, data, self.run, self.device, self.world).make)
        background = Background(self.run, self.recipe.refresher, refresh_command(self.recipe, self.run), self.world, self.former_refresher)
        background.reset()

        def desk_of(product: Product) -> Inline | Background:
            return inline if product.run == "inline" else background

        training = StageTraining(
            self.recipe, name, data, self.run, self.accelerator, self.world, desk_of, replay_scripts(self.run.replay, name)
        )  # fmt: skip
        return training.train(start, resume)

    @contextmanager
    def _recording_the_end(self) -> Iterator[None]:
        """However the run ends, its folder says so and where; the last word of a full disk may be lost, its place is not."""
        try:
            with self.world.saying_why():
                yield
        except BaseException as error:
            where = self.run.trainer.where
            status = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            try:
                self.run.mark(status, where, reason=str(error) or type(error).__name__)
                self.run.error.write_text(traceback.format_exc(), encoding="utf-8")
            except (OSError, RuntimeError) as second:
                log.error("could not record the end in %s: %s", self.run.state, second)
            log.error("%s at %s; go on with: --output %s --resume", status, where, self.run.folder)
            raise
        self.run.mark("finished", "the end")


def accelerator_of(recipe: Recipe) -> Accelerator:
    if recipe.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: cuda, but torch finds no GPU here; see python -m pyserini_ance.doctor, or use device: auto")
    precision = resolve_precision(recipe.precision, recipe.device)
    return Accelerator(cpu=recipe.device == "cpu", mixed_precision="bf16" if precision == "bf16" else "no")
