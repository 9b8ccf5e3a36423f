"""Processes of tests, forked from one that has imported the package: multiprocessing's fork server.

`Processes` runs a test's function on every rank of a world; `CommandServer` starts and kills commands.
"""

import importlib.util
import inspect
import multiprocessing
import os
import pickle
import random
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from types import ModuleType
from typing import Any

# Only a power cut loses what is written, no kill does; a run of ten steps waits for the disk 350 times.
os.fsync = lambda file: None
# Most processes need these, and would import the last four in 2.7 s of processor time each; Pyserini would
# start Java, whose threads a fork would lack.
PRELOADED = ["pytest", "pyserini_ance.commands.console", "pyserini_ance.commands.train"]
PRELOADED += ["pyserini_ance.reports.finish", "pyserini_ance.refresher.refresher"]
PRELOADED += ["transformers.models.bert.modeling_bert", "transformers.models.bert.tokenization_bert"]
PRELOADED += ["sentence_transformers.sentence_transformer.modules", "matplotlib.pyplot"]
PRELOADED += ["openai", "tiktoken", "helpers.processes"]  # the first two for Pyserini's encoders
# Below the ports that the system assigns: a free port stays free until the first process binds it.
PORTS = range(15000, 30000)


def forkserver() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def start(folder: Path, work: Callable, *arguments: Any) -> ForkServerProcess:
    """Start `work(*arguments)` in a process whose output goes to `stdout` and `stderr` in `folder`."""
    for name in ("stdout", "stderr"):
        (folder / name).touch()  # also of a process that is killed before it begins
    process = forkserver().Process(target=_redirected, args=(folder, work, *arguments))
    process.start()
    return process


def _redirected(folder: Path, work: Callable, *arguments: Any) -> None:
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    work(*arguments)


class Processes:
    """Runs a test's own function in the processes of a world, with torchrun's environment and real gloo.

        def total(world, part):
            return sum(int(one) for one in world.gather(torch.tensor([part + world.rank])))

        def test_total(run_processes):
            assert run_processes(3, total, 10) == [33, 33, 33]

    The function runs within `world.session()`; `join=False` leaves the joining to the function, which then
    gets no world: a command that makes its own. Arguments and values are pickled. Monkeypatches of the test
    do not reach the processes; the function may patch for itself. `"helpers/process_functions.py:name"` is a
    function of a file beside the tests that imports what pytest's own process must not (faiss).
    """

    def __call__(self, size: int, function: Callable | str, *arguments, join=True, seconds=300.0) -> list:
        """The value of `function(world, *arguments)` on each rank; fails with the tracebacks."""
        ends = self.ends(size, function, *arguments, join=join, seconds=seconds)
        bad = [(rank, end) for rank, end in enumerate(ends) if end["code"]]
        said = (f"rank {rank} ended with {end['code']}\n{end['error']}\n{end['output']}" for rank, end in bad)
        assert not bad, "\n".join(said)
        return [end["value"] for end in ends]

    def ends(self, size: int, function: Callable | str, *arguments, join=True, seconds=300.0) -> list[dict]:
        """Each rank's value, error, code (minus its signal), output, seconds; killed after `seconds`."""
        if isinstance(function, str):
            file, _, name = function.partition(":")
            where = (str(Path(__file__).parents[1] / file), f"of {file}", name)
        else:
            file = inspect.getfile(inspect.unwrap(function))
            where = (file, function.__module__, function.__qualname__)
        with tempfile.TemporaryDirectory() as name:
            folders, began = [Path(name, str(rank)) for rank in range(size)], time.monotonic()
            variables = {"MASTER_PORT": _free_port(), "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
            processes = []
            for rank, folder in enumerate(folders):
                folder.mkdir()
                named = {**variables, "RANK": rank, "LOCAL_RANK": rank}
                processes.append(start(folder, _rank, folder, *where, pickle.dumps(arguments), join, named))
            ended: dict[int, float] = {}
            while len(ended) < size:
                passed = time.monotonic() - began
                for rank, process in enumerate(processes):
                    if process.exitcode is not None:
                        ended.setdefault(rank, passed)
                    elif passed > seconds:
                        process.kill()
                time.sleep(0.01)
            ends = zip(folders, processes, [ended[rank] for rank in range(size)])
            return [_end(folder, process.exitcode, passed) for folder, process, passed in ends]


def _rank(folder: Path, file: str, module: str, name: str, arguments: bytes, join: bool, named: dict) -> None:
    """The process of one rank; what it returns or raises goes into a file."""
    from pyserini_ance.distributed.world import World

    os.environ.update({key: str(value) for key, value in named.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    answer = {}
    try:
        function = getattr(_loaded(file, module), name)
        given = pickle.loads(arguments)
        if join:
            with World.join("cpu").session() as world:
                answer["value"] = function(world, *given)
        else:
            answer["value"] = function(*given)
    except SystemExit:
        raise
    except BaseException:
        answer["error"] = traceback.format_exc()
        sys.exit(1)
    finally:
        (folder / "answer").write_bytes(pickle.dumps(answer))


def _end(folder: Path, code: int, seconds: float) -> dict:
    answer = pickle.loads((folder / "answer").read_bytes()) if (folder / "answer").exists() else {}
    output = "".join((folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))
    return {"value": None, "error": None, **answer, "code": code, "output": output, "seconds": seconds}


def _loaded(file: str, module: str) -> ModuleType:
    """The test file as a module, under the name it has in pytest: pickles of its classes find it."""
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, file)
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return sys.modules[module]


def _free_port() -> int:
    while True:
        with socket.socket() as probe:
            port = random.choice(PORTS)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class CommandServer:
    """Commands in processes of their own. `with CommandServer() as server: ...`"""

    def __enter__(self) -> "CommandServer":
        self._folder = tempfile.TemporaryDirectory()
        self._processes: dict[int, tuple[ForkServerProcess, Path]] = {}
        return self

    def __exit__(self, *_) -> None:
        for process, _ in self._processes.values():
            process.kill()
        self._folder.cleanup()

    def start(self, command: str, arguments: Sequence[str], fault=None, stage="", step=0) -> int:
        """The process id of a `pyserini-ance` command; `fault` is a function of run_failures.py."""
        folder = Path(tempfile.mkdtemp(dir=self._folder.name))
        process = start(folder, _command, command, list(arguments), fault, stage, step)
        self._processes[process.pid] = process, folder
        return process.pid

    def wait(self, pid: int, code: int | None = None) -> dict:
        """The process's `code` (or minus its signal), `stdout` and `stderr`; fails where it is not `code`."""
        process, folder = self._processes.pop(pid)
        process.join()
        texts = {name: (folder / name).read_text(errors="replace") for name in ("stdout", "stderr")}
        assert code in (None, process.exitcode), (process.exitcode, texts)
        return {"code": process.exitcode, **texts}

    def has_ended(self, pid: int) -> bool:
        return self._processes[pid][0].exitcode is not None

    def kill(self, pid: int) -> dict:
        """End the process as a power cut would."""
        self._processes[pid][0].kill()
        return self.wait(pid)

    def run(self, command: str, arguments: Sequence[str], code: int = 0, **fault) -> dict:
        return self.wait(self.start(command, arguments, **fault), code)


def _command(*arguments: Any) -> None:
    from helpers.process_functions import run

    run(*arguments)
