"""Fork processes on request (stdin) from one that has imported everything: many real runs for one import.

Request: {"command", "arguments", "fault": a function of run_failures.py or null, "stage", "step"}; answer:
{"pid"}. Request: {"wait": pid}; answer: {"code": exit code, or minus the signal that ended the process,
"stdout", "stderr"}. Request: {"look": pid}; answer: {"ended"}.
"""

import json
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers import run_failures
from helpers.imported_once import ImportedOnce

from pyserini_ance.commands import console, refresh, train
from pyserini_ance.pipeline import refresher_process
from pyserini_ance.trainer import executors

# Trainer and refresher poll often, so that a small run does not spend its time waiting.
executors.POLL_SECONDS = refresher_process.POLL_SECONDS = refresher_process.START_POLL_SECONDS = 0.02
COMMANDS = {"train": train.main, "refresh": refresh.main}


def run(request: dict) -> None:
    """Run the real command in the child, which ends as the command ends."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["fault"]:
        getattr(run_failures, request["fault"])(request["stage"], request["step"])
    console.run(lambda: COMMANDS[request["command"]](request["arguments"]))


def train_together(
    arguments: list[str], fault: tuple[str, str, int] = (), ranks: tuple[int, ...] = (0, 1)
) -> None:
    """In each process of a world (fixture `run_processes`, join=False); `fault` (function, stage, step)
    befalls `ranks`.
    """
    run({"command": "train", "arguments": arguments, **_fault_here(fault, int(os.environ["RANK"]) in ranks)})


def train_and_refresh(
    train: list[str], refresh: list[str], fault: tuple[str, str, int] = (), ranks: tuple[int, ...] = ()
) -> None:
    """The first half of the processes are a trainer's world, the others a refresher's; `ranks` are those of
    all together.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) // 2
    here = {"RANK": rank % size, "LOCAL_RANK": rank % size, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    here["MASTER_PORT"] = int(os.environ["MASTER_PORT"]) + rank // size
    os.environ.update({name: str(value) for name, value in here.items()})
    command, arguments = ("train", train) if rank < size else ("refresh", refresh)
    run({"command": command, "arguments": arguments, **_fault_here(fault, rank in ranks)})


def _fault_here(fault: tuple[str, str, int], here: bool) -> dict:
    return dict(zip(("fault", "stage", "step"), fault, strict=True)) if fault and here else {"fault": None}


def written_by_others(folder: str, arguments: list[str]) -> list[str]:
    """Train; what each process that is not the first has opened for writing, made, renamed or removed in
    `folder`.
    """
    written, changing = (
        [],
        {
            "os.mkdir",
            "os.rename",
            "os.remove",
            "os.rmdir",
            "os.link",
            "os.symlink",
            "os.truncate",
            "os.utime",
        },
    )

    def listen(event: str, details: tuple) -> None:
        writes = event in changing or (
            event == "open" and details[2] is not None and details[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
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
        self.imported_once = ImportedOnce()

    def start(self, request: dict) -> dict:
        output, results = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.imported_once.import_reported()
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 2)
            os.dup2(results.fileno(), 1)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            code = 1
            try:
                run(request)
            except SystemExit as end:
                code = end.code
            except BaseException:
                traceback.print_exc()
            finally:
                self.imported_once.report()
                os._exit(code)
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
