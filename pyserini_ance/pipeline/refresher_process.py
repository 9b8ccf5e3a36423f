"""The refresher as a process: its loop, the job of `pyserini-ance refresh`, and the subprocess that training
starts.
"""

import json
import logging
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.evaluation.tables import BM25
from pyserini_ance.pipeline.preparation import prepare
from pyserini_ance.recipe.models import Recipe, RefresherProcess
from pyserini_ance.refresher.refresher import CheckpointRemoved, Refresher
from pyserini_ance.runs.generation import RefreshRequest, next_requests, read_requests
from pyserini_ance.runs.provenance import RUNTIME_KEYS
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.liveness import HeartbeatMonitor
from pyserini_ance.storage.publish import clear_abandoned
from pyserini_ance.storage.role_lock import LockHeld
from pyserini_ance.trainer.resume import check_same_data, check_same_recipe, data_digest

log = logging.getLogger(__name__)
POLL_SECONDS = 0.2
START_POLL_SECONDS = 0.5
MOST_LAST_WORDS = 2_000  # characters of a subprocess's last error message
EXIT_SECONDS = 20  # torchrun kills its processes 30 seconds after it has asked them to end
# torchrun sets these for its processes; a subprocess of one of them does not belong to that world.
TORCHRUN_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "ROLE_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
)


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
        last_alive = time.monotonic()
        timeout = self.settings.trainer_timeout_seconds
        while True:
            if requests := next_requests(read_requests(self.run), self.run):
                return {"requests": [vars(request) for request in requests]}
            record = self.run.trainer.read() or {}
            if record.get("status") == "finished":
                return {"end": "the run has finished"}
            if self.trainer.alive():
                last_alive = time.monotonic()
            elif time.monotonic() - last_alive > timeout:
                silence = f"training has given no sign of life for {timeout} seconds"
                return {"end": f"{silence} ({self.trainer.describe()})"}
            self.world.check()
            time.sleep(POLL_SECONDS)


def refresh_command(recipe: Recipe, run: RunDir) -> str:
    """The command that a user types to start a refresher of this run; torchrun starts it on several
    processes."""
    return shlex.join(["pyserini-ance", *_arguments(recipe, run)])


def _arguments(recipe: Recipe, run: RunDir) -> list[str]:
    """`refresh` with the run's own recipe and the settings in which this call differs: a run may move to
    another machine."""
    saved, given = (
        flatten(r.model_dump(mode="json", include=set(RUNTIME_KEYS))) for r in (run.read_recipe(), recipe)
    )
    overrides = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in given.items()
        if value != saved.get(key)
    ]
    return ["refresh", str(run.recipe), *overrides, "--output", str(run.folder)]


def flatten(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} becomes {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def needs_refresher(recipe: Recipe) -> bool:
    """Whether a stage has `mode: async`."""
    products = (p for stage in recipe.stages.values() for p in (stage.refresh, stage.effective_evaluate))
    return any(product is not None and product.mode == "async" for product in products)


@contextmanager
def refresher_subprocess(recipe: Recipe, run: RunDir) -> Iterator[Callable[[], str | None]]:
    """Run a refresher as a subprocess during the body, if the recipe launches one and none is running yet.

    The subprocess has a session of its own: Ctrl-C reaches training alone, which then ends the subprocess; if
    training is killed, the subprocess exits on its own.

    Yields a function that returns the exit code and the last words of a subprocess that ended with an error;
    None while it runs, and if it was killed: another refresher may then take over.
    """
    if not needs_refresher(recipe) or recipe.refresher.launch == "external" or _is_running(run):
        yield lambda: None
        return
    with open(run.refresher_log, "ab") as output:
        log_start = output.tell()
        process = subprocess.Popen(
            refresher_command(recipe, run),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=refresher_environment(recipe.refresher),
        )
    log.info("started a refresher, process %d; it logs to %s", process.pid, run.refresher_log)
    ending = threading.Event()
    threading.Thread(target=_report_end, args=(process, recipe, run, ending), daemon=True).start()

    def failure() -> str | None:
        code = process.poll()
        if code is None or code <= 0:
            return None
        return f"exit code {code}: {last_words(run.refresher_log, log_start)}\nIts log is {run.refresher_log}"

    try:
        yield failure
    except BaseException:
        ending.set()
        process.terminate()
        raise
    finally:
        ending.set()
        _end(process)


def last_words(path: Path, start: int) -> str:
    """The last error message in a log after byte `start`, or the last line if there is none."""
    with path.open("rb") as file:
        file.seek(start)
        lines = file.read().decode("utf-8", "replace").splitlines()
    lines = [line for line in lines if line.strip()] or ["nothing was logged"]
    errors = [position for position, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[errors[-1] if errors else -1 :])[:MOST_LAST_WORDS]


def _is_running(run: RunDir) -> bool:
    try:
        run.refresher.check_free()
    except LockHeld as other:
        log.info("a refresher is already running: %s", other)
        return True
    return False


def refresher_command(recipe: Recipe, run: RunDir) -> list[str]:
    """The command line of the subprocess, under torchrun if `refresher.processes` is above 1."""
    processes = recipe.refresher.processes
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    launcher = torchrun if processes > 1 else []
    return [sys.executable, *launcher, "-m", "pyserini_ance", *_arguments(recipe, run)]


def refresher_environment(settings: RefresherProcess) -> dict[str, str]:
    """The environment of the subprocess: this process's without torchrun's variables, and
    `refresher.threads`.

    PYTHONPATH is this process's sys.path: the subprocess finds the modules of own classes as training does.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in TORCHRUN_VARIABLES and not name.startswith("TORCHELASTIC_")
    }
    paths = [os.path.abspath(path) for path in sys.path]
    inherited["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(os.path.exists, paths)))
    return {**inherited, "OMP_NUM_THREADS": str(settings.threads)} if settings.threads else inherited


def _report_end(
    process: subprocess.Popen[bytes], recipe: Recipe, run: RunDir, ending: threading.Event
) -> None:
    code = process.wait()
    if not ending.is_set():
        log.error(
            "the refresher has ended (exit code %d, see %s); training continues until it needs "
            "new negatives. "
            "Start another refresher with: %s",
            code,
            run.refresher_log,
            refresh_command(recipe, run),
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the subprocess: it exits on its own when the run has finished, and has been terminated
    otherwise."""
    try:
        process.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


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
        refresher = Refresher(recipe, data, run, world.device, world, _reporter(run, world))
        return RefresherLoop(run, refresher, recipe.refresher, world).work()


def _begin(run: RunDir, recipe: Recipe, world: World, stack: ExitStack) -> str:
    """Wait for the run to start and lock the refresher's role; returns the digest of the run's data."""
    _wait_for(run, recipe, world)
    check_same_recipe(run, recipe, refresh_command(recipe, run))
    previous = run.refresher.acquire("preparing")
    if previous and previous["status"] == "running":
        clear_abandoned(run.negatives, previous)
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
