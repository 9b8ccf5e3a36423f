"""The refresher's own job, beside training: what the `refresh` command calls."""

import logging
import time
from contextlib import ExitStack
from pathlib import Path

import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.experiment.child import refresh_command
from pyserini_ance.experiment.prepare import prepare
from pyserini_ance.experiment.resume import data_digest, refuse_other_data, refuse_other_recipe
from pyserini_ance.measures.compare import BM25
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.refresher.watching import Watching
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import clear_abandoned

log = logging.getLogger(__name__)
POLL_SECONDS = 0.5


def refresh(recipe: Recipe, folder: Path) -> str:
    """Be the refresher of the run in `folder`, which may not have begun yet, until its training has ended; why it left.

    Raises RuntimeError when another refresher is at work there, ValueError when the run is of another recipe or other data.
    """
    run, world = RunDir(folder), World.join(recipe.refresher.device)
    if recipe.refresher.threads:
        torch.set_num_threads(recipe.refresher.threads)
    with world.guarding(), ExitStack() as held:
        digest = world.once(lambda: _begin(run, recipe, world, held))
        data = prepare(recipe, world, digest)
        refuse_other_data(run, data.collection)
        data.run_files[BM25] = run.bm25_negatives(recipe.train_split.name)
        refresher = Refresher(recipe, data, run, world.device, world, _say(run, world))
        return Watching(run, refresher, recipe.refresher, world).work()


def _begin(run: RunDir, recipe: Recipe, world: World, held: ExitStack) -> str:
    """Wait for the run, and take the post; the digest of its data."""
    _wait_for(run, recipe, world)
    refuse_other_recipe(run, recipe, refresh_command(recipe, run))
    former = run.refresher.take("preparing")
    if former and former["status"] == "running":
        clear_abandoned(run.negatives, former)
    held.enter_context(run.refresher.hold("preparing"))
    held.enter_context(world.saying_why())
    return data_digest(run)


def _wait_for(run: RunDir, recipe: Recipe, world: World) -> None:
    start, said = time.monotonic(), False
    while not (run.recipe.exists() and run.environment.exists()):
        if time.monotonic() - start > recipe.refresher.leave_after_seconds:
            raise FileNotFoundError(f"no training has begun in {run.folder} for {recipe.refresher.leave_after_seconds} seconds")
        if not said:
            log.info("waiting for training to begin: python -m pyserini_ance.train %s --output %s", recipe.name, run.folder)
            said = True
        world.check()
        time.sleep(POLL_SECONDS)


def _say(run: RunDir, world: World):
    return (lambda doing: run.refresher.mark("running", doing)) if world.is_main else (lambda doing: None)
