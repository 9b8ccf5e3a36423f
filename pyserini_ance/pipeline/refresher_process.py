"""The refresher as a process: its loop, and the job of `pyserini-ance refresh`."""

import logging
import time
from collections.abc import Callable
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
from pyserini_ance.storage.liveness import HeartbeatMonitor
from pyserini_ance.trainer.resume import check_same_data, check_same_recipe, data_digest

log = logging.getLogger(__name__)
POLL_SECONDS = 0.2
START_POLL_SECONDS = 0.5


class RefresherLoop:
    """Serves requests until training has ended or has given no sign of life for `trainer_timeout_seconds`.

    The main process polls and tells the other processes of the world.
    """

    def __init__(self, run: RunDir, refresher: Refresher, settings: RefresherProcess, world: World):
        self.run, self.refresher, self.settings, self.world = run, refresher, settings, world
        self.trainer = HeartbeatMonitor(run.trainer)

    def work(self) -> str:
        """Serve requests; return the reason for ending."""
        while True:
            answer = self.world.on_main(self._poll)
            if "end" in answer:
                return answer["end"]
            for request in (RefreshRequest(**fields) for fields in answer["requests"]):
                self._serve(request)

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
        """Wait for requests, or for a reason to end."""
        self.refresher.report("waiting for requests")
        requests, end = wait_for(
            lambda: next_requests(read_requests(self.run), self.run),
            self.trainer,
            self.settings.trainer_timeout_seconds,
            self.world,
        )
        return {"requests": [vars(request) for request in requests]} if requests else {"end": end}


def wait_for[Found](
    find: Callable[[], Found], trainer: HeartbeatMonitor, trainer_timeout_seconds: float, world: World
) -> tuple[Found | None, str]:
    """Wait until `find` returns anything but nothing: (what it returned, ""), or (None, reason to end)."""
    last_alive = time.monotonic()
    while True:
        if found := find():
            return found, ""
        if trainer.alive():
            last_alive = time.monotonic()
        elif trainer.record and trainer.record["status"] == "finished":
            return None, "the run has finished"
        elif time.monotonic() - last_alive > trainer_timeout_seconds:
            silence = f"training has given no sign of life for {trainer_timeout_seconds} seconds"
            return None, f"{silence} ({trainer.describe()})"
        world.check()
        time.sleep(POLL_SECONDS)


def refresh(recipe: Recipe, folder: Path) -> str:
    """Refresh the run in `folder`, which need not have started yet, until its training ends.

    Returns the reason for the end. Raises RuntimeError if another refresher works on the run, ValueError if
    the run has another recipe or other data.
    """
    run, world = RunDir(folder), World.join(recipe.refresher.device)
    if recipe.refresher.threads:
        torch.set_num_threads(recipe.refresher.threads)
    with world.session(), ExitStack() as stack:
        digest = world.on_main(lambda: _begin(run, recipe, world, stack))
        data = prepare(recipe, world, digest)
        check_same_data(run, data.collection)
        data.run_files[BM25] = run.bm25_negatives(recipe.train_split.name)
        refresher = Refresher(recipe, data, run, world, _reporter(run, world))
        reason = RefresherLoop(run, refresher, recipe.refresher, world).work()
        world.on_main(lambda: clean_up_finished(run, recipe))
        return reason


def _begin(run: RunDir, recipe: Recipe, world: World, stack: ExitStack) -> str:
    """Wait for the run to start and lock the refresher's role; returns the digest of the run's data."""
    _wait_for(run, recipe, world)
    check_same_recipe(run, recipe, refresh_command(recipe, run))
    previous = run.refresher.acquire("preparing")
    if previous and previous["status"] == "running":
        run.clear_abandoned(previous, recipe.cache)
    stack.enter_context(run.refresher.held("preparing"))
    stack.enter_context(world.reraise_peer_error())
    return data_digest(run)


def _wait_for(run: RunDir, recipe: Recipe, world: World) -> None:
    start, has_logged, timeout = time.monotonic(), False, recipe.refresher.trainer_timeout_seconds
    while not (run.recipe.exists() and run.environment.exists()):
        if time.monotonic() - start > timeout:
            raise FileNotFoundError(f"no training has started in {run.folder} for {timeout} seconds")
        if not has_logged:
            command = f"pyserini-ance train {recipe.name} --output {run.folder}"
            log.info("waiting for training to start: %s", command)
            has_logged = True
        world.check()
        time.sleep(START_POLL_SECONDS)


def _reporter(run: RunDir, world: World) -> Callable[[str], None]:
    """A function that records what the refresher is doing; on the main process only."""
    return (lambda doing: run.refresher.mark("running", doing)) if world.is_main else (lambda doing: None)
