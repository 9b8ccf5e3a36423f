"""Contests: several contenders do the same work in turns, each in a process of its own.

All are loaded before the first round, and one works at a time: a change of the machine's speed meets all of
them alike. Times are compared within a round, as ratios of CPU time, which other work on the machine
disturbs least.
"""

import importlib.util
import multiprocessing
import os
import resource
import signal
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyserini_ance.storage.progress import progress_bar


class Measurement(NamedTuple):
    """One round: seconds on the CPU (all threads and children), on the clock, and the peak of memory so far.

    peak_mib: None where the system does not tell.
    """

    cpu_seconds: float
    seconds: float
    peak_mib: float | None


class Rounds:
    """The side of a contender, which prepares, and then works once for each round: `for _ in rounds: ...`.

    What it has set as `output` in the last round is compared with what the others have set. Work within the
    loop of another library calls `begin` and `end` itself.
    """

    def __init__(self, connection: Connection, output: Path):
        self._connection, self._file = connection, output
        self.output: np.ndarray | None = None

    def __iter__(self) -> Iterator[None]:
        while self.begin():
            yield
            self.end()

    def begin(self) -> bool:
        """Wait for the turn; False if there is none any more."""
        self._connection.send("ready")
        if not self._connection.recv():
            return False
        self._started = time.perf_counter(), _cpu_seconds()
        return True

    def end(self) -> None:
        """Report the time since `begin`."""
        seconds, cpu_seconds = time.perf_counter() - self._started[0], _cpu_seconds() - self._started[1]
        if self.output is not None:
            np.save(self._file, self.output)
        # Of this program; `getrusage` would count the process that started it, too.
        peak = proc_value("/proc/self/status", "VmHWM")
        peak_mib = int(peak.removesuffix("kB")) / 1024 if peak else None
        self._connection.send(Measurement(cpu_seconds, seconds, peak_mib))


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def proc_value(path: str, name: str) -> str | None:
    """The first value of `name` in a file of /proc; None where the system has no such file or name."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)


@dataclass(frozen=True)
class Contender:
    """`work(rounds, folder, **settings)` in a process of its own; `folder` holds the contest's inputs.

    needs: modules that must be installed. against: its times are what the others are divided by.
    """

    name: str
    work: Callable[..., None]
    settings: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    against: bool = False


@dataclass
class Entry:
    """What a contender has measured, or why it has not."""

    contender: Contender
    measurements: list[Measurement] = field(default_factory=list)
    output: np.ndarray | None = None
    missing: str | None = None

    def cpu_seconds(self) -> float:
        return statistics.median(each.cpu_seconds for each in self.measurements)

    def seconds(self) -> float:
        return statistics.median(each.seconds for each in self.measurements)

    def speed_up(self, other: "Entry") -> tuple[float, float, float]:
        """How many times as fast as `other`, by CPU time within a round: median, lowest, highest."""
        ratios = [
            theirs.cpu_seconds / max(own.cpu_seconds, 1e-9)
            for own, theirs in zip(self.measurements, other.measurements, strict=True)
        ]
        return statistics.median(ratios), min(ratios), max(ratios)


@dataclass(frozen=True)
class Contest:
    """What is done, by whom, and how the outputs are compared.

    flops: useful floating-point operations of a round, if they are known. agreement: (own output, the first
    contender's or that of `reference`) -> figures, in columns of their names.
    """

    name: str
    title: str
    contenders: Sequence[Contender]
    flops: float | None = None
    agreement: Callable[[np.ndarray, np.ndarray], dict[str, float]] | None = None
    reference: str | None = None


class ContenderError(Exception):
    """A contender has failed; the message has its last words."""


def contest(plan: Contest, folder: Path, rounds: int) -> list[Entry]:
    """Let all contenders work `rounds` times, in turns, after one round that is not measured.

    A contender that is not installed or fails is left out, and its entry says why; the others go on.
    """
    entries = [Entry(contender) for contender in plan.contenders]
    for entry in entries:
        if missing := [name for name in entry.contender.needs if importlib.util.find_spec(name) is None]:
            entry.missing = f"not installed: {', '.join(missing)}"
    taking_part = [entry for entry in entries if not entry.missing]
    workers: dict[str, _Worker] = {}
    turns = len(taking_part) * (rounds + 2)
    with progress_bar(total=turns, desc=plan.name, unit="turn", leave=False) as bar:
        try:
            for number in range(-1, rounds + 1):  # all are loaded in round -1, and warm after round 0
                first = max(number, 0) % max(1, len(taking_part))  # nobody always follows the same contender
                for entry in taking_part[first:] + taking_part[:first]:
                    contender = entry.contender
                    try:
                        if number == -1:
                            workers[contender.name] = _Worker(contender, folder)
                            workers[contender.name].receive()
                        elif not entry.missing:
                            entry.measurements += [workers[contender.name].work()] * (number > 0)
                    except ContenderError as error:
                        entry.missing, entry.measurements = f"failed: {error}", []
                    bar.update()
        finally:
            for worker in workers.values():
                worker.let_end()
            for worker in workers.values():
                worker.stop()
    for entry in taking_part:
        file = _output_file(folder, entry.contender)
        entry.output = np.load(file) if file.exists() else None
    return entries


def _output_file(folder: Path, contender: Contender) -> Path:
    return folder / f"output of {contender.name.replace('/', '-')}.npy"


class _Worker:
    """The process of a contender."""

    def __init__(self, contender: Contender, folder: Path):
        context: Any = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(contender, folder, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def work(self) -> Measurement:
        with suppress(OSError):  # it was killed between its turns: `receive` says so
            self._connection.send(True)
        measurement: Measurement = self.receive()
        self.receive()  # ready for the next round
        return measurement

    def let_end(self) -> None:
        """Say that there is no further turn; `stop` waits for the end."""
        with suppress(OSError):
            self._connection.send(False)

    def stop(self) -> None:
        self._process.join(10)
        self._process.kill()
        self._process.join()

    def receive(self) -> Any:
        try:
            received = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            ending = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            raise ContenderError(ending + " (out of memory?)" * (code == -signal.SIGKILL)) from None
        if isinstance(received, str) and received != "ready":
            raise ContenderError(received)
        return received


def _serve(contender: Contender, folder: Path, connection: Connection) -> None:
    """The process of a contender: run its work, and send the first line of its error if it fails.

    What libraries print is shown only with PYSERINI_ANCE_DEBUG=1.
    """
    rounds = Rounds(connection, _output_file(folder, contender))
    debug = os.environ.get("PYSERINI_ANCE_DEBUG") == "1"
    if not debug:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
    try:
        contender.work(rounds, folder, **contender.settings)
    except KeyboardInterrupt:
        pass
    except BaseException as error:
        if debug:
            traceback.print_exc()
        with suppress(OSError):
            connection.send(": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]]))
