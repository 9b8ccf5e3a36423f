"""The refresher that training starts as a subprocess: what it needs, its command, and its end."""

import json
import logging
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from pyserini_ance.recipe.components import SettingError, absolute
from pyserini_ance.recipe.models import Recipe, RefresherProcess
from pyserini_ance.runs.provenance import RUNTIME_KEYS
from pyserini_ance.runs.rundir import RunDir

log = logging.getLogger(__name__)
MOST_LAST_WORDS = 2_000  # characters of a subprocess's last error message
EXIT_SECONDS = 20  # torchrun kills its processes 30 seconds after it has asked them to end
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
    saved, given = (
        flatten(absolute(r).model_dump(mode="json", include=set(RUNTIME_KEYS)))
        for r in (run.read_recipe(), recipe)
    )
    overrides = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in given.items()
        if value != saved.get(key)
    ]
    return ["refresh", str(run.recipe.absolute()), *overrides, "--output", str(run.folder.absolute())]


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


def check_refresher(recipe: Recipe) -> None:
    """Raise SettingError if the refresher subprocess lacks GPUs: training would learn it only when it needs
    negatives."""
    settings = recipe.refresher
    if not needs_refresher(recipe) or settings.launch == "external" or settings.device == "cpu":
        return
    gpus = torch.cuda.device_count()
    first = int(settings.device.partition(":")[2] or 0)
    uses_gpus = settings.device.startswith("cuda") or (settings.device == "auto" and gpus)
    if uses_gpus and first + settings.processes > gpus:
        raise SettingError(
            f"refresher.device is {settings.device} and refresher.processes {settings.processes}, from GPU "
            f"{first} on, but torch sees {gpus} GPUs. Set refresher.device=cpu, or fewer processes, or start "
            "the refresher on another machine (refresher.launch=external)"
        )


def refresher_device(settings: RefresherProcess, local_processes: int, gpus: int) -> str:
    """The device of a refresher whose training has `local_processes` on this host, each on a GPU of its own.

    For `device: auto` it is the first GPU that training leaves free, or GPU 0 if too few are free.
    """
    if settings.device != "auto" or not gpus:
        return settings.device
    return f"cuda:{local_processes if local_processes + settings.processes <= gpus else 0}"


def _with_device(recipe: Recipe) -> Recipe:
    """`recipe` with the refresher's device on this host; log a warning if it shares GPUs with training."""
    settings = recipe.refresher
    if "cpu" in (settings.device, recipe.device):  # with training on the CPU `auto` is any GPU
        return recipe
    local_processes, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    device = refresher_device(settings, local_processes, gpus)
    first = int(device.partition(":")[2] or 0)
    if device != "auto" and first < local_processes:
        log.warning(
            "the refresher shares GPU %d with training (%d training processes here, %d GPUs): both become "
            "slower. Free a GPU by fewer --nproc-per-node, or set refresher.device",
            first,
            local_processes,
            gpus,
        )
    return recipe.model_copy(update={"refresher": settings.model_copy(update={"device": device})})


@contextmanager
def refresher_subprocess(recipe: Recipe, run: RunDir) -> Iterator[Callable[[], str | None]]:
    """Run a refresher as a subprocess during the body, if the recipe launches one and none is running yet.

    The subprocess has a session of its own: Ctrl-C reaches training alone, which then ends the subprocess; if
    training is killed, the subprocess exits on its own.

    Yields a function that returns the exit code and the last words of a subprocess that ended with an error,
    or was killed before it had taken the refresher's role. None while it runs, and if it was killed at work:
    another refresher may then take over.
    """
    if not needs_refresher(recipe) or recipe.refresher.launch == "external":
        yield lambda: None
        return
    if run.refresher.is_held:
        log.info("a refresher is already running: %s", run.refresher.describe())
        yield lambda: None
        return
    recipe = _with_device(recipe)
    before = run.refresher.read()
    with open(run.refresher_log, "ab") as output:
        log_start = output.tell()
        process = subprocess.Popen(
            refresher_command(recipe, run),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=subprocess_environment(recipe.refresher.threads),
        )
    log.info("started a refresher, process %d; it logs to %s", process.pid, run.refresher_log)
    ending = threading.Event()
    threading.Thread(target=_report_end, args=(process, recipe, run, ending), daemon=True).start()

    def failure() -> str | None:
        code = process.poll()
        if not code or (code < 0 and run.refresher.read() != before):
            return None
        return f"exit code {code}: {last_words(run.refresher_log, log_start)}\nIts log is {run.refresher_log}"

    try:
        yield failure
    except BaseException:
        ending.set()
        process.terminate()
        _end(process, process.kill)
        raise
    ending.set()
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
    """The command line of the subprocess, under torchrun if `refresher.processes` is above 1."""
    processes = recipe.refresher.processes
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    launcher = torchrun if processes > 1 else []
    return [sys.executable, *launcher, "-m", "pyserini_ance", *_arguments(recipe, run)]


def subprocess_environment(threads: int | None) -> dict[str, str]:
    """The environment of a subprocess: this process's without torchrun's variables, and `threads` for torch.

    PYTHONPATH is this process's sys.path: the subprocess finds the modules of own classes as training does.
    """
    inherited = {name: value for name, value in os.environ.items() if not TORCHRUN.fullmatch(name)}
    paths = [os.path.abspath(path) for path in sys.path]
    inherited["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(os.path.exists, paths)))
    return {**inherited, "OMP_NUM_THREADS": str(threads)} if threads else inherited


def _report_end(
    process: subprocess.Popen[bytes], recipe: Recipe, run: RunDir, ending: threading.Event
) -> None:
    code = process.wait()
    if not ending.is_set():
        log.error(
            "the refresher has ended (exit code %d, see %s); training continues until it needs new "
            "negatives. Start another refresher with: %s",
            code,
            run.refresher_log,
            refresh_command(recipe, run),
        )


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
