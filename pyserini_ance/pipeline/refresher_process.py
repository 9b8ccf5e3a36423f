"""The refresher as a process: how training starts and ends it, and the job of `pyserini-ance refresh`."""

import json
import logging
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.evaluation.tables import BM25
from pyserini_ance.pipeline.preparation import prepare
from pyserini_ance.recipe.components import absolute
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.refresher.refresher import CheckpointRemoved, Refresher
from pyserini_ance.runs.checkpoint import clean_up_finished
from pyserini_ance.runs.generation import RefreshRequest, next_requests, read_requests
from pyserini_ance.runs.provenance import RUNTIME_KEYS
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.executors import TIMEOUT_SECONDS
from pyserini_ance.trainer.resume import check_same_data, check_same_recipe, data_digest

log = logging.getLogger(__name__)
MOST_LAST_WORDS = 2_000  # characters of a subprocess's last error message
EXIT_SECONDS = 20  # torchrun kills its processes 30 seconds after it has asked them to end
POLL_SECONDS = 0.2
START_POLL_SECONDS = 0.5
# torchrun sets these for its processes; a subprocess of one of them does not belong to that world.
TORCHRUN = re.compile(
    "RANK|WORLD_SIZE|(LOCAL|GROUP|ROLE)_(RANK|WORLD_SIZE|NAME)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*"
)


def refresh_command(recipe: Recipe, run: RunDir) -> str:
    """The command that a user types to start a refresher of this run; torchrun starts it on several
    processes."""
    return shlex.join(["pyserini-ance", *_arguments(recipe, run)])


def _arguments(recipe: Recipe, run: RunDir) -> list[str]:
    """`refresh` with the run's own recipe and the settings in which this call differs: a run may move to
    another machine. No path depends on the working directory."""

    def settings_of(recipe: Recipe) -> dict[str, Any]:
        return absolute(recipe).model_dump(mode="json", include=RUNTIME_KEYS)

    saved = settings_of(run.read_recipe())
    overrides = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in settings_of(recipe).items()
        if value != saved[key]
    ]
    return ["refresh", str(run.recipe.absolute()), *overrides, "--output", str(run.folder.absolute())]


def refresher_device(recipe: Recipe, gpus: int) -> str:
    """The device of a refresher beside training, whose processes on this host have each a GPU of their own:
    the first that they leave free, or training's first if none is free."""
    if recipe.device == "cpu" or not gpus:
        return recipe.device
    first = int(recipe.device.partition(":")[2] or 0)
    free = first + int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return f"cuda:{free if free < gpus else first}"


@contextmanager
def refresher_subprocess(recipe: Recipe, run: RunDir) -> Iterator[Callable[[], str | None]]:
    """Run a refresher as a subprocess during the body, if the recipe launches one and none is running yet.

    The subprocess has a session of its own: Ctrl-C reaches training alone, which then ends the subprocess; if
    training is killed, the subprocess exits on its own.

    Yields a function that returns the exit code and the last words of a subprocess that ended with an error,
    or was killed before it had taken the refresher's role. None while it runs, and if it was killed at work:
    another refresher may then take over.
    """
    products = (p for stage in recipe.stages.values() for p in (stage.refresh, stage.effective_evaluate))
    if recipe.refresher == "external" or not any(one and one.mode == "async" for one in products):
        yield lambda: None
        return
    if run.refresher.is_held:
        log.info("a refresher is already running: %s", run.refresher.describe())
        yield lambda: None
        return
    device = refresher_device(recipe, torch.cuda.device_count())
    before = run.refresher.read()
    with open(run.refresher_log, "ab") as output:
        log_start = output.tell()
        process = subprocess.Popen(
            refresher_command(recipe.model_copy(update={"device": device}), run),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=subprocess_environment(recipe.threads),
        )
    log.info("started a refresher, process %d on %s; it logs to %s", process.pid, device, run.refresher_log)

    def failure() -> str | None:
        code = process.poll()
        if not code or (code < 0 and run.refresher.read() != before):
            return None
        return f"exit code {code}: {last_words(run.refresher_log, log_start)}\nIts log is {run.refresher_log}"

    try:
        yield failure
    except BaseException:
        process.terminate()
        _end(process, process.kill)
        raise
    _end(process, process.terminate, process.kill)


def last_words(path: Path, start: int) -> str:
    """The last error message in a log after byte `start`, or the last line if there is none."""
    with path.open("rb") as file:
        file.seek(start)
        lines = file.read().decode("utf-8", "replace").splitlines()
    lines = [line for line in lines if line.strip()] or ["nothing was logged"]
    errors = [position for position, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[errors[-1] if errors else -1 :])[:MOST_LAST_WORDS]


def refresher_command(recipe: Recipe, run: RunDir) -> list[str]:
    """The command line of the subprocess."""
    return [sys.executable, "-m", "pyserini_ance", *_arguments(recipe, run)]


def subprocess_environment(threads: int | None) -> dict[str, str]:
    """The environment of a subprocess: this process's without torchrun's variables, and `threads` for torch.

    PYTHONPATH is this process's sys.path: the subprocess finds the modules of own classes as training does,
    and `-m` does not put the working directory before it.
    """
    inherited = {name: value for name, value in os.environ.items() if not TORCHRUN.fullmatch(name)}
    paths = [os.path.abspath(path) for path in sys.path]
    inherited["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(os.path.exists, paths)))
    inherited["PYTHONSAFEPATH"] = "1"
    return {**inherited, "OMP_NUM_THREADS": str(threads)} if threads else inherited


def _end(process: subprocess.Popen[bytes], *measures: Callable[[], None]) -> None:
    """Wait for the subprocess, and take the next of the `measures` whenever it has not ended in time.

    It exits on its own when the run has finished, unless it still makes a product that nobody adopts.
    """
    for measure in measures:
        try:
            process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            measure()
    process.wait()


def refresh(recipe: Recipe, folder: Path) -> str:
    """Refresh the run in `folder`, which need not have started yet, until its training ends.

    Returns the reason for the end. Raises RuntimeError if another refresher works on the run, ValueError if
    the run has another recipe or other data.
    """
    run, world = RunDir(folder), World.join(recipe.device)
    timeout_seconds = TIMEOUT_SECONDS[recipe.refresher]
    if recipe.threads:
        torch.set_num_threads(recipe.threads)

    def begin() -> str:
        """Wait for the run to start, and take the refresher's role; returns the digest of the run's data."""
        end = time.monotonic() + timeout_seconds
        if not run.can_resume:
            start = shlex.join(["pyserini-ance", "train", recipe.name, "--output", str(run.folder)])
            log.info("waiting for training to start: %s", start)
        while not run.can_resume:
            if time.monotonic() > end:
                raise FileNotFoundError(
                    f"no training has started in {run.folder} for {timeout_seconds} seconds"
                )
            time.sleep(START_POLL_SECONDS)
        check_same_recipe(run, recipe, refresh_command(recipe, run))
        stack.enter_context(run.refresher.held("preparing"))
        return data_digest(run)

    report = partial(run.refresher.mark, "running")  # the main process alone reports
    with world.session(), ExitStack() as stack:
        data = prepare(recipe, world, world.on_main(begin))
        check_same_data(run, data.collection)
        data.training_rankings[BM25] = run.bm25_negatives(recipe.train_name)
        reason = serve_requests(run, Refresher(recipe, data, run, world, report), timeout_seconds, world)
        world.on_main(lambda: clean_up_finished(run, recipe) if run.refresher.is_own else None)
        return reason


def serve_requests(run: RunDir, refresher: Refresher, timeout_seconds: float, world: World) -> str:
    """Serve requests until training has ended, or has been dead for `timeout_seconds`.

    Returns the reason for ending. The main process polls and tells the other processes of the world.
    """

    def poll() -> dict[str, Any]:
        last_alive = time.monotonic()
        if run.refresher.is_own:
            refresher.report("waiting for requests")
        while run.refresher.is_own:
            if requests := next_requests(read_requests(run), run):
                return {"requests": [vars(request) for request in requests]}
            if (record := run.trainer.read()) and record["status"] == "finished":
                return {"end": "the run has finished"}
            if run.trainer.is_held:
                last_alive = time.monotonic()
            elif time.monotonic() - last_alive > timeout_seconds:
                return {"end": f"no training for {timeout_seconds} seconds ({run.trainer.describe()})"}
            time.sleep(POLL_SECONDS)
        return {"end": f"{run.folder} was removed, or made anew"}

    def is_open(request: RefreshRequest) -> bool:
        return request in read_requests(run)

    while "end" not in (answer := world.on_main(poll)):
        for request in (RefreshRequest(**fields) for fields in answer["requests"]):
            start = time.perf_counter()
            try:
                refresher.make(request)
            except CheckpointRemoved:
                # Training may have removed the checkpoint because it cancelled the request; otherwise this is
                # an error.
                if world.on_main(partial(is_open, request)):
                    raise
                log.info("%s: no longer needed", request.describe())
            else:
                log.info("%s: made in %.1f s", request.describe(), time.perf_counter() - start)
    return str(answer["end"])
