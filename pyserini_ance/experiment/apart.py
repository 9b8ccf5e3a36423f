"""A run in a process of its own: what it leaves in memory, or dies of, is not the next one's."""

import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

from tqdm.contrib.logging import logging_redirect_tqdm

from pyserini_ance import cli
from pyserini_ance.distributed.interruption import interrupt_on_termination
from pyserini_ance.experiment.experiment import train
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir


def train_apart(recipe: Recipe, run: RunDir, overwrite: bool) -> None:
    """Begin the run, or go on with it. Raises RuntimeError when it fails.

    The process is forked, since importing everything anew takes longer than a small run; this one has trained nothing itself.
    """
    resume = not overwrite and run.recipe.exists() and run.environment.exists()
    begun = run.state.exists() and not resume  # it died before there was anything to go on from
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    child = fork.Process(target=_train, args=(recipe, run.folder, overwrite or begun, resume, theirs))
    child.start()
    theirs.close()  # so that the end of a child that dies while it tells is seen
    try:
        reason = _hear(ours, child)
        child.join()
    except BaseException:
        child.terminate()
        child.join()
        raise
    if child.exitcode:
        ended = f"killed by signal {-child.exitcode}" if child.exitcode < 0 else f"exit code {child.exitcode}"
        raise RuntimeError(reason or ended)


def _hear(ours: Connection, child: ForkProcess) -> str | None:
    """What the child says at its end, before it is joined: it waits until a text longer than the pipe holds is read."""
    wait([ours, child.sentinel])
    with suppress(EOFError):
        return ours.recv() if ours.poll() else None


def _train(recipe: Recipe, folder: Path, overwrite: bool, resume: bool, reason: Connection) -> None:
    """In the child. Ctrl-C reaches the parent alone, which then ends the child; of a parent that was killed it takes leave itself."""

    def work() -> None:
        try:
            train(recipe, folder, overwrite, resume)
        except (ValueError, OSError, RuntimeError) as error:
            reason.send(str(error))
            raise

    os.setsid()
    interrupt_on_termination()
    threading.Thread(target=_leave_with_the_parent, daemon=True).start()
    with logging_redirect_tqdm():
        cli.run(work)


def _leave_with_the_parent() -> None:
    multiprocessing.parent_process().join()
    os.kill(os.getpid(), signal.SIGTERM)
