"""The refresher that training starts beside itself, on the same machine."""

import json
import logging
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.models import Recipe, RefresherProcess
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.runs.variant import MAY_CHANGE
from pyserini_ance.storage.election import Held

log = logging.getLogger(__name__)
LEAVE_SECONDS = 20  # torchrun lets its processes live for 30 after it has told them to end
# What torchrun tells its processes; a child of one of them is no part of that world.
OF_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE",
               "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT")  # fmt: skip


def refresh_command(recipe: Recipe, run: RunDir) -> str:
    """What to type to start a refresher of this run; under torchrun on more than one process."""
    return shlex.join(["python", "-m", *_module_and_arguments(recipe, run)])


def _module_and_arguments(recipe: Recipe, run: RunDir) -> list[str]:
    """The run's own recipe, and what this call has set otherwise: where a run computes may change when it is resumed."""
    saved, given = (flat(r.model_dump(mode="json", include=set(MAY_CHANGE))) for r in (load(run.recipe).recipe, recipe))
    overrides = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in given.items() if value != saved.get(key)]
    return ["pyserini_ance.refresh", str(run.recipe), *overrides, "--output", str(run.folder)]


def flat(settings: dict, prefix: str = "") -> dict:
    """{"a": {"b": 1}} becomes {"a.b": 1}."""
    inner = (flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value} for key, value in settings.items())
    return {key: value for part in inner for key, value in part.items()}


def needs_refresher(recipe: Recipe) -> bool:
    products = [product for stage in recipe.stages.values() for product in (stage.refresh, stage.measuring) if product]
    return any(product.run == "background" for product in products)


@contextmanager
def refresher_beside(recipe: Recipe, run: RunDir) -> Iterator[None]:
    """A refresher at work while the body runs, where the recipe wants a child and none is at work already.

    It is a session of its own: Ctrl-C reaches training alone, which then ends it; of a training that was killed it takes leave itself.
    """
    if not needs_refresher(recipe) or recipe.refresher.start == "elsewhere" or _is_at_work(run):
        yield
        return
    with open(run.refresher_log, "ab") as output:
        child = subprocess.Popen(
            command_of(recipe, run), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            env=environment_of(recipe.refresher),
        )  # fmt: skip
    log.info("started a refresher, process %d; it writes %s", child.pid, run.refresher_log)
    ending = threading.Event()
    threading.Thread(target=_report_end, args=(child, recipe, run, ending), daemon=True).start()
    try:
        yield
    except BaseException:
        ending.set()
        child.terminate()
        raise
    finally:
        ending.set()
        _end(child)


def _is_at_work(run: RunDir) -> bool:
    try:
        run.refresher.vacant()
    except Held as other:
        log.info("a refresher is at work already: %s", other)
        return True
    return False


def command_of(recipe: Recipe, run: RunDir) -> list[str]:
    processes = recipe.refresher.processes
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    return [sys.executable, *launcher, "-m", *_module_and_arguments(recipe, run)]


def environment_of(settings: RefresherProcess) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in OF_TORCHRUN and not name.startswith("TORCHELASTIC_")}
    return {**kept, "OMP_NUM_THREADS": str(settings.threads)} if settings.threads else kept


def _report_end(child: subprocess.Popen, recipe: Recipe, run: RunDir, ending: threading.Event) -> None:
    code = child.wait()
    if not ending.is_set():
        log.error(
            "the refresher has ended (exit code %d, see %s); training goes on as far as it may without. Start another with: %s",
            code, run.refresher_log, refresh_command(recipe, run),
        )  # fmt: skip


def _end(child: subprocess.Popen) -> None:
    """It leaves by itself when the run has finished; otherwise it was asked to."""
    try:
        child.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
