"""Train in a subprocess, so that neither leaked memory nor a crash of one run affects the next; forked
processes that work beside this one."""

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

from tqdm.contrib.logging import logging_redirect_tqdm

from pyserini_ance.distributed.failures import FAILED, INTERRUPTED, interrupt_on_termination
from pyserini_ance.pipeline.experiment import train
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.error_text import text_of
from pyserini_ance.storage.progress import label_lines

POLL_SECONDS = 0.5
log = logging.getLogger(__name__)


@contextmanager
def beside(count: int, work: Callable[[], object]) -> Iterator[None]:
    """Call `work` in `count` forked processes while the block runs, and wait for them after it.

    They end if the block raises, or if this process dies.
    """
    fork = multiprocessing.get_context("fork")
    processes: list[ForkProcess] = []
    try:
        for _ in range(count):
            process = fork.Process(target=_work, args=(work,))
            process.start()
            processes.append(process)
        yield
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    finally:
        for process in processes:
            process.join()
    for process in processes:
        if process.exitcode:
            log.warning(
                "a job ended early (%s; out of memory?), and the others did its work; use fewer --jobs",
                _ending(process.exitcode),
            )


def _work(work: Callable[[], object]) -> None:
    interrupt_on_termination()
    _follow_parent()
    try:
        work()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)  # the parent says so


def train_in_subprocess(recipe: Recipe, run: RunDir, overwrite: bool, label: str | None = None) -> None:
    """Start the run, or resume it; `label` begins what it logs. Raises RuntimeError if it fails.

    The process is forked: importing everything again takes longer than a small run, and the parent has
    trained nothing.
    """
    resume = not overwrite and run.can_resume
    # A run with a state but nothing to resume died during preparation: it is replaced.
    overwrite = overwrite or (run.state.exists() and not resume)
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    child = fork.Process(target=_train, args=(recipe, run.folder, overwrite, resume, sender, label))
    child.start()
    sender.close()  # so that `recv` ends if the child dies while it sends
    try:
        wait([receiver, child.sentinel])
        reason: str | None = None
        with suppress(EOFError):  # before `join`: the child blocks on a text longer than the pipe's buffer
            reason = receiver.recv() if receiver.poll() else None
        child.join()
    except BaseException:
        child.terminate()
        child.join()
        raise
    if child.exitcode:
        raise RuntimeError(reason or _ending(child.exitcode))


def _ending(exitcode: int) -> str:
    return f"killed by signal {-exitcode}" if exitcode < 0 else f"exit code {exitcode}"


def _train(
    recipe: Recipe, folder: Path, overwrite: bool, resume: bool, sender: Connection, label: str | None
) -> None:
    """Train in the child.

    Ctrl-C reaches the parent alone, which then ends the child; if the parent is killed, the child exits on
    its own.
    """
    os.setsid()
    interrupt_on_termination()
    _follow_parent()
    begin = f"{label}: " if label else ""
    if label:
        label_lines(label)
    try:
        with logging_redirect_tqdm():
            train(recipe, folder, overwrite, resume)
    except KeyboardInterrupt:
        print(f"{begin}interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except (ValueError, OSError, RuntimeError) as error:
        message = text_of(error)
        sender.send(message)
        if os.environ.get("PYSERINI_ANCE_DEBUG") == "1":
            traceback.print_exc()
        print(f"{begin}error: {message}", file=sys.stderr)
        sys.exit(FAILED)


def _follow_parent() -> None:
    """End this process when its parent dies."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        # Its pipe stays open in processes that it forked later; they would end one after another.
        while os.getppid() == parent.pid:
            time.sleep(POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
