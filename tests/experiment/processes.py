"""Forks a process for each line of stdin from one that has imported everything: many real runs for the price of one import.

In: {"arguments": of the train command, "trouble": a function below or null, "stage", "step": where it strikes}.
Out: {"code": exit code, or minus the signal that ended it, "stderr"}.
"""

import errno
import json
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

import faiss  # noqa: F401
import transformers.models.bert.modeling_bert  # noqa: F401

import pyserini_ance.experiment.experiment  # noqa: F401
from pyserini_ance import cli, train
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.pyserini_bridge import export
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


def kill_in_export(stage: str, step: int) -> None:
    export.write_index = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


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


def run(request: dict) -> None:
    """In the child: the real command, ending as it ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["trouble"]:
        globals()[request["trouble"]](request["stage"], request["step"])
    cli.run(lambda: train.main(request["arguments"]))


def main() -> None:
    for line in sys.stdin:
        with tempfile.TemporaryFile() as stderr:
            child = os.fork()
            if child == 0:
                os.dup2(stderr.fileno(), 2)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                try:
                    run(json.loads(line))
                except SystemExit as end:
                    os._exit(end.code)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            stderr.seek(0)
            print(json.dumps({"code": code, "stderr": stderr.read().decode()}), flush=True)


if __name__ == "__main__":
    main()
