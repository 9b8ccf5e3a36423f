"""The refresher as a process: its loop, and the job of `pyserini-ance refresh`."""

import logging
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.evaluation.tables import BM25
from pyserini_ance.pipeline.preparation import prepare
from pyserini_ance.pipeline.refresher_subprocess import refresh_command
from pyserini_ance.recipe.models import Recipe, RefresherProcess
from pyserini_ance.refresher.refresher import CheckpointRemoved, Refresher
from pyserini_ance.runs.generation import RefreshRequest, next_requests, read_requests
from pyserini_ance.runs.retention import clean_up_finished
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.resume import check_same_data, check_same_recipe, data_digest

log = logging.getLogger(__name__)
POLL_SECONDS = 0.2
START_POLL_SECONDS = 0.5


class RefresherLoop:
    """Serves requests until training has ended, or has been dead for `trainer_timeout_seconds`.

    The main process polls and tells the other processes of the world.
    """

    def __init__(self, run: RunDir, refresher: Refresher, settings: RefresherProcess, world: World):
        self.run, self.refresher, self.settings, self.world = run, refresher, settings, world

    def work(self) -> str:
        """Serve requests; return the reason for ending."""
        while "end" not in (answer := self.world.on_main(self._poll)):
            for request in (RefreshRequest(**fields) for fields in answer["requests"]):
                self._serve(request)
        return answer["end"]

    def _serve(self, request: RefreshRequest) -> None:
        start = time.perf_counter()
        try:
            self.refresher.make(request)
        except CheckpointRemoved:
            # Training may have removed the checkpoint because it cancelled the request; otherwise this is an
            # error.
            if self.world.on_main(lambda: request in read_requests(self.run)):
                raise
            log.info("%s: no longer needed", request.describe())
            return
        log.info("%s: made in %.1f s", request.describe(), time.perf_counter() - start)

    def _poll(self) -> dict[str, Any]:
        """Wait for `requests`, or for a reason to `end`."""
        self.refresher.report("waiting for requests")
        trainer, timeout, last_alive = (
            self.run.trainer,
            self.settings.trainer_timeout_seconds,
            time.monotonic(),
        )
        while True:
            if requests := next_requests(read_requests(self.run), self.run):
                return {"requests": [vars(request) for request in requests]}
            if (record := trainer.read()) and record["status"] == "finished":
                return {"end": "the run has finished"}
            if trainer.is_held:
                last_alive = time.monotonic()
            elif time.monotonic() - last_alive > timeout:
                return {"end": f"no training for {timeout} seconds ({trainer.describe()})"}
            time.sleep(POLL_SECONDS)


def refresh(recipe: Recipe, folder: Path) -> str:
    """Refresh the run in `folder`, which need not have started yet, until its training ends.

    Returns the reason for the end. Raises RuntimeError if another refresher works on the run, ValueError if
    the run has another recipe or other data.
    """
    run, world = RunDir(folder), World.join(recipe.refresher.device)
    if recipe.refresher.threads:
        torch.set_num_threads(recipe.refresher.threads)

    def begin() -> str:
        """Wait for the run to start, and take the refresher's role; returns the digest of the run's data."""
        _wait_for(run, recipe)
        check_same_recipe(run, recipe, refresh_command(recipe, run))
        stack.enter_context(run.refresher.held("preparing"))
        return data_digest(run)

    def report(doing: str) -> None:
        if world.is_main:
            run.refresher.mark("running", doing)

    with world.session(), ExitStack() as stack:
        data = prepare(recipe, world, world.on_main(begin))
        check_same_data(run, data.collection)
        data.run_files[BM25] = run.bm25_negatives(recipe.train_split.name)
        refresher = Refresher(recipe, data, run, world, report)
        reason = RefresherLoop(run, refresher, recipe.refresher, world).work()
        world.on_main(lambda: clean_up_finished(run, recipe))
        return reason


def _wait_for(run: RunDir, recipe: Recipe) -> None:
    timeout = recipe.refresher.trainer_timeout_seconds
    end = time.monotonic() + timeout
    if not run.can_resume:
        log.info("waiting for training to start: pyserini-ance train %s --output %s", recipe.name, run.folder)
    while not run.can_resume:
        if time.monotonic() > end:
            raise FileNotFoundError(f"no training has started in {run.folder} for {timeout} seconds")
        time.sleep(START_POLL_SECONDS)
