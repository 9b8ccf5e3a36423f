"""Fork the processes of a world from one that has imported the test file: many worlds for one import.

The fixture `run_processes` (tests/conftest.py) starts this program and documents its use. Input, pickled:
{"size", "file" of the test, "module", "function", "arguments" pickled, "join", "seconds"}. Output, pickled:
one {"value", "error": traceback or None, "code": exit code, or minus a signal, "output", "seconds"} a rank.
"""

import importlib.util
import io
import os
import pickle
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path

# The paths of pytest's own process: pickles name the functions of test files and of helpers by them.
sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from helpers.imported_once import ImportedOnce  # noqa: E402 the path comes first

from pyserini_ance.distributed.world import World  # noqa: E402

IMPORTED_ONCE = ImportedOnce()

# Below the ports that the system assigns: a port that is free now stays free until the first process binds
# it.
PORTS = range(15000, 30000)


def load(file: str, module: str):
    """The test file as a module, under the name it has in pytest: pickles of its classes find it."""
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, file)
        sys.modules[module] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[module])
        except BaseException:
            del sys.modules[module]
            raise
    return sys.modules[module]


def free_port() -> int:
    while True:
        with socket.socket() as probe:
            port = random.choice(PORTS)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    """The variables of torchrun, and gloo on the loopback device."""
    numbers = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_PORT": port,
    }
    return {
        **{name: str(value) for name, value in numbers.items()},
        "MASTER_ADDR": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def work(request: dict) -> object:
    function = getattr(sys.modules[request["module"]], request["function"])
    arguments = pickle.loads(request["arguments"])
    if not request["join"]:
        return function(*arguments)
    with World.join("cpu").session() as world:
        return function(world, *arguments)


def child(request: dict, rank: int, port: int, output: io.FileIO, answer: io.FileIO) -> None:
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    os.environ.update(environment(rank, request["size"], port))
    code = 0
    try:
        result = pickle.dumps({"value": work(request)})
    except SystemExit as end:
        result, code = pickle.dumps({}), end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        result, code = pickle.dumps({"error": traceback.format_exc()}), 1
    answer.write(result)
    answer.flush()
    IMPORTED_ONCE.report()
    os._exit(code)


def run(request: dict) -> list[dict]:
    load(request["file"], request["module"])
    IMPORTED_ONCE.import_reported()
    files = [(tempfile.TemporaryFile(), tempfile.TemporaryFile()) for _ in range(request["size"])]
    port, began = free_port(), time.monotonic()
    pids = []
    for rank in range(request["size"]):
        pids.append(os.fork())
        if pids[-1] == 0:
            child(request, rank, port, *files[rank])
    ends = wait(pids, began, request["seconds"])
    for end, (output, answer) in zip(ends, files, strict=True):
        for file in (output, answer):
            file.seek(0)
        written = answer.read()
        end.update(pickle.loads(written) if written else {}, output=output.read().decode(errors="replace"))
    return ends


def wait(pids: list[int], began: float, seconds: float) -> list[dict]:
    """How each process ended; those left after `seconds`, or stopped when all others ended, are killed."""
    ends = [{"value": None, "error": None, "code": None} for _ in pids]
    stopped = set()
    while left := {pid: end for pid, end in zip(pids, ends, strict=True) if end["code"] is None}:
        late = time.monotonic() - began > seconds
        for pid, end in left.items():
            if late or set(left) <= stopped:
                os.kill(pid, signal.SIGKILL)
            changed, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not changed or os.WIFCONTINUED(status):
                stopped -= {changed}
            elif os.WIFSTOPPED(status):
                stopped.add(pid)
            else:
                end.update(code=os.waitstatus_to_exitcode(status), seconds=time.monotonic() - began)
                end["error"] = f"killed after {seconds} s" if late else None
        time.sleep(0.01)
    return ends


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a test file prints while it is imported is no reply
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            reply = run(request)
        except Exception:
            reply = traceback.format_exc()
        pickle.dump(reply, replies)
        replies.flush()


if __name__ == "__main__":
    main()
