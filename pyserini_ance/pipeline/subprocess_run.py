"""Train in a subprocess, so that neither leaked memory nor a crash of one run affects the next; forked
processes that work beside this one."""

import multiprocessing
import os
import signal
import sys
import threading
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
from pyserini_ance.storage.progress import label_lines


@contextmanager
def beside(count: int, work: Callable[[], object]) -> Iterator[None]:
    """Call `work` in `count` forked processes while the block runs, and wait for them after it.

    They end if the block raises, or if this process dies.
    """
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_work, args=(work,)) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    finally:
        for process in processes:
            process.join()


def _work(work: Callable[[], object]) -> None:
    interrupt_on_termination()
    _follow_parent()
    try:
        work()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)  # the parent says so


def train_in_subprocess(recipe: Recipe, run: RunDir, overwrite: bool, label: str | None = None) -> None:
    """Start the run, or resume it; `label` begins each line of its log. Raises RuntimeError if it fails.

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
        reason = _receive_reason(receiver, child)
        child.join()
    except BaseException:
        child.terminate()
        child.join()
        raise
    if child.exitcode:
        ended = f"killed by signal {-child.exitcode}" if child.exitcode < 0 else f"exit code {child.exitcode}"
        raise RuntimeError(reason or ended)


def _receive_reason(receiver: Connection, child: ForkProcess) -> str | None:
    """The child's error message, or None.

    Read before `join`: the child blocks on a text longer than the pipe's buffer.
    """
    wait([receiver, child.sentinel])
    reason: str | None = None
    with suppress(EOFError):
        reason = receiver.recv() if receiver.poll() else None
    return reason


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
    if label:
        label_lines(label)
    try:
        with logging_redirect_tqdm():
            train(recipe, folder, overwrite, resume)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except (ValueError, OSError, RuntimeError) as error:
        message = str(error) or type(error).__name__
        sender.send(str(error))
        if os.environ.get("PYSERINI_ANCE_DEBUG") == "1":
            traceback.print_exc()
        print(f"error: {message}", file=sys.stderr)
        sys.exit(FAILED)


def _follow_parent() -> None:
    """End this process when its parent dies."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
