"""Python programs, forked from a process that has imported what they import.

    with forked_programs(folder) as python:
        subprocess.run([*python, "-m", "pyserini_ance", "doctor"], capture_output=True)

`python` is a command in the interpreter's place: -c SOURCE, -m MODULE or FILE, and arguments follow. It
starts a small client, which hands its environment, working directory and standard files to the forking
process, and ends as the program ends. It passes signals on; when it is killed, the program is killed a moment
later.
"""

import atexit
import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Iterator
from pathlib import Path

SERVE = "--serve"
POLL_SECONDS = 0.01


@contextlib.contextmanager
def forked_programs(folder: Path) -> Iterator[list[str]]:
    """The command; the forking process ends with the block. `folder` holds its socket."""
    address = str(folder / "s")
    with subprocess.Popen([sys.executable, __file__, SERVE, address], stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # it listens
        yield [sys.executable, "-IS", __file__, address]
        process.terminate()


def call(address: str, arguments: list[str]) -> int:
    """Run a program in the forking process; returns its exit code, or dies of the signal that ended it."""
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


def serve(address: str) -> None:
    """Fork a process for each client: it forks the program, and waits for the end of program and client."""
    own_folder, *given = sys.path
    path = [folder for folder in given if folder not in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    sys.path[0] = str(Path(own_folder).parents[1])  # whether or not the package is installed
    sys.path.append(str(Path(own_folder).parent))
    from helpers.processes import PRELOADED

    for name in PRELOADED:
        importlib.import_module(name)
    sys.path.pop()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends pytest, which ends this process
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        print("listening", flush=True)
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _attend(connection, path)
            connection.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _attend(connection: socket.socket, path: list[str]) -> None:
    """The process of one client; does not return."""
    try:
        _, files, _, _ = socket.recv_fds(connection, 1, 3)
        request = json.loads(connection.makefile().readline())
        pid = os.fork()
        if pid == 0:
            connection.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            _run(request, path)
        for file in files:
            os.close(file)  # a reader of the program's output waits for the last one
        devnull = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(devnull, number)
        connection.sendall(b"%d\n" % pid)
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            if select.select([connection], [], [], POLL_SECONDS)[0]:  # the client was killed
                os.kill(pid, signal.SIGKILL)
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
    finally:
        os._exit(0)


def _run(request: dict, path: list[str]) -> None:
    """Run the program as `python` would; does not return."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        code = _exit_code(
            request["arguments"], [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *path]
        )
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    finally:
        os._exit(code)


def _exit_code(arguments: list[str], path: list[str]) -> int:
    kind, name, sys.argv = arguments[0], arguments[1] if len(arguments) > 1 else "", arguments
    try:
        if kind == "-m":
            sys.path[:] = [os.getcwd(), *path]
            sys.argv = arguments[1:]
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        elif kind == "-c":
            sys.path[:] = ["", *path]
            sys.argv = ["-c", *arguments[2:]]
            sys.modules["__main__"] = main = types.ModuleType("__main__")
            exec(compile(name, "<string>", "exec"), vars(main))
        else:
            sys.path[:] = [str(Path(kind).resolve().parent), *path]
            runpy.run_path(kind, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1] == SERVE:
        serve(sys.argv[2])
    sys.exit(call(sys.argv[1], sys.argv[2:]))
