"""Python programs, forked from a process that has imported what they import: multiprocessing's fork server.

    with forked_programs(folder) as python:
        subprocess.run([*python, "-m", "pyserini_ance", "doctor"], capture_output=True)

`python` is a command in the interpreter's place: -c SOURCE, -m MODULE or FILE, and arguments follow. It
starts a small client, which hands its environment, working directory and standard files to a thread of this
process, and ends as the program ends. It passes signals on; when it is killed, the program is killed a moment
later.
"""

import atexit
import contextlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.01


@contextlib.contextmanager
def forked_programs(folder: Path) -> Iterator[list[str]]:
    """The command; `folder` holds its socket."""
    address = str(folder / "s")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        threading.Thread(target=_serve, args=(listening,), daemon=True).start()
        yield [sys.executable, "-IS", __file__, address]
        listening.shutdown(socket.SHUT_RDWR)


def _serve(listening: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it was shut down
        while True:
            threading.Thread(target=_attend, args=listening.accept()[:1], daemon=True).start()


def _attend(connection: socket.socket) -> None:
    """Start the program of a client, and wait for the end of either."""
    from multiprocessing.reduction import DupFd

    from helpers.processes import forkserver

    class Files:
        """Duplicates file descriptors for the process that it is handed to."""

        def __reduce__(self) -> tuple:
            return tuple, ([DupFd(file) for file in files],)

    with connection:
        _, files, _, _ = socket.recv_fds(connection, 1, 3)
        request = json.loads(connection.makefile().readline())
        process = forkserver().Process(target=_run, args=(request, Files()))
        process.start()
        for file in files:
            os.close(file)  # a reader of the program's output waits for the last one
        connection.sendall(b"%d\n" % process.pid)
        while process.exitcode is None:
            if select.select([connection], [], [], POLL_SECONDS)[0]:  # the client was killed
                process.kill()
                process.join()
        with contextlib.suppress(OSError):
            connection.sendall(b"%d\n" % process.exitcode)


def call(address: str, arguments: list[str]) -> int:
    """Run a program in a forked process; returns its exit code, or dies of the signal that ended it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b"\n"], [0, 1, 2])
        request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
        connection.sendall(json.dumps(request).encode() + b"\n")
        answers = connection.makefile()
        pid = int(answers.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        code = int(answers.readline())
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _run(request: dict, files: tuple[Any, ...]) -> None:
    """Run the program as `python` would; multiprocessing gives the process its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, file in enumerate(files):
        os.dup2(file.detach(), number)
    sys.stdin = open(0, closefd=False)  # multiprocessing has replaced it
    # Those of the server believe that they can seek, as the files can that pytest captures output in.
    sys.stdout = open(1, "w", closefd=False)
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    named = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    path = [folder for folder in sys.path if folder not in ("", str(Path(__file__).parents[1]))]
    kind, *sys.argv = request["arguments"]
    try:
        if kind == "-m":
            sys.path[:] = [os.getcwd(), *named, *path]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        elif kind == "-c":
            sys.path[:] = ["", *named, *path]
            source, sys.argv[0] = sys.argv[0], "-c"
            sys.modules["__main__"] = main = types.ModuleType("__main__")
            exec(compile(source, "<string>", "exec"), vars(main))
        else:
            sys.argv.insert(0, kind)
            sys.path[:] = [str(Path(kind).resolve().parent), *named, *path]
            runpy.run_path(kind, run_name="__main__")
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()


if __name__ == "__main__":
    sys.exit(call(sys.argv[1], sys.argv[2:]))
