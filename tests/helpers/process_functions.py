"""Commands with failures, for the processes of `helpers.processes`."""

import os
import sys

from helpers import run_failures

from pyserini_ance.commands import adapt, console, encode, refresh, train
from pyserini_ance.pipeline import refresher_process
from pyserini_ance.trainer import executors

# Trainer and refresher poll often, so that a small run does not spend its time waiting.
executors.POLL_SECONDS = refresher_process.POLL_SECONDS = refresher_process.START_POLL_SECONDS = 0.02
COMMANDS = {"adapt": adapt.main, "encode": encode.main, "train": train.main, "refresh": refresh.main}


def run(command: str, arguments: list[str], fault: str | None = None, stage: str = "", step: int = 0) -> None:
    """Run the real command in this process, which ends as the command ends."""
    if fault:
        getattr(run_failures, fault)(stage, step)
    console.run(lambda: COMMANDS[command](arguments))


def train_together(arguments: list[str], fault: tuple[str, str, int] = (), ranks=(0, 1)) -> None:
    """In each process of `run_processes(..., join=False)`; `fault` (function, stage, step) is for `ranks`."""
    run("train", arguments, *(fault if int(os.environ["RANK"]) in ranks else ()))


def train_and_refresh(train: list[str], refresh: list[str], fault=(), ranks=()) -> None:
    """The first half of the processes train, the others refresh; `ranks` are those of all together."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) // 2
    here = {"RANK": rank % size, "LOCAL_RANK": rank % size, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    here["MASTER_PORT"] = int(os.environ["MASTER_PORT"]) + rank // size
    os.environ.update({name: str(value) for name, value in here.items()})
    command, arguments = ("train", train) if rank < size else ("refresh", refresh)
    run(command, arguments, *(fault if rank in ranks else ()))


def written_by_others(folder: str, arguments: list[str]) -> list[str]:
    """Train; what each process but the first has written, made, renamed or removed in `folder`."""
    written: list[str] = []
    acts = ["mkdir", "rename", "remove", "rmdir", "link", "symlink", "truncate", "utime"]
    changing = {f"os.{act}" for act in acts}

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
