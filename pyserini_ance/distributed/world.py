"""World: the processes that torchrun started for one command, or the one process without it.

Every process runs the same program. Collectives (`gather`, `sum_gradients`) are called by all, at the same point, with
work of even length before them; where one process works and the others wait, or work is of uneven length, they wait by
polling a store (`once`, `meet`), which costs no processor and never times out. When a process ends before the others,
they raise PeerError within a minute, wherever they wait, or call `check`.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist

from pyserini_ance.distributed.gradients import sum_gradients
from pyserini_ance.distributed.interruption import begin_the_end
from pyserini_ance.distributed.join import COLLECTIVE_SECONDS, device_of, join
from pyserini_ance.distributed.loss import CURE, Loss, PeerError
from pyserini_ance.distributed.peers import HEAR_SECONDS, POLL_SECONDS, Peers, Silence

COLLECTIVE_POLL_SECONDS = 0.0002  # gloo on one host needs 0.5 to 1 ms for the smallest


class World:
    def __init__(self, rank: int = 0, size: int = 1, device: str = "cpu", peers: Peers | None = None):
        """`device` is where this process computes: cpu, cuda, or cuda:N under torchrun."""
        self.rank, self.size, self.device, self._peers = rank, size, device, peers
        self._turn = 0

    @classmethod
    def join(cls, device: str) -> "World":
        """The world that torchrun's environment describes; `device` is a recipe's setting (auto, cpu, cuda)."""
        device = device_of(device)
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls(device=device)
        peers = join(device)
        return cls(dist.get_rank(), dist.get_world_size(), device, peers)

    @contextmanager
    def guarding(self) -> Iterator["World"]:
        """Around a command's work: an error inside is told to the others, a clean end closes the world."""
        try:
            with self.saying_why():
                yield self
        except BaseException as error:
            self.fail(error)
            raise
        self.close()

    @contextmanager
    def saying_why(self) -> Iterator[None]:
        """Inside everything that records how the work ends: the error that leaves it says why, and is the last.

        torchrun ends all when one has ended, by a signal: an interruption is a PeerError where another process was lost,
        and news of another's interruption are an interruption.
        """
        try:
            yield
        except BaseException as error:
            begin_the_end()
            if isinstance(error, KeyboardInterrupt) or (isinstance(error, PeerError) and error.loss.interrupted):
                if self.lost():
                    self.check()
                raise KeyboardInterrupt from error
            raise

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def gather(self, part: torch.Tensor) -> list[torch.Tensor]:
        """Every process's `part` (n_r, ...), in rank order, without gradients; first dimensions may differ."""
        part = part.detach()
        if self.size == 1:
            return [part]
        rows = [int(n) for n in self._all_gather(torch.tensor([len(part)]))]
        padded = torch.zeros((max(rows), *part.shape[1:]), dtype=part.dtype, device=part.device)
        padded[: len(part)] = part
        return [one[:n] for one, n in zip(self._all_gather(padded), rows, strict=True)]

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace each gradient by the sum over all processes, the same bits on all; who has none anywhere keeps none."""
        parameters = [parameter for parameter in parameters if parameter.requires_grad]
        if self.size == 1 or not parameters:
            return
        there = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32)
        self._collective(dist.all_reduce, there, dist.ReduceOp.MAX)
        summed = [parameter for parameter, somewhere in zip(parameters, there.tolist(), strict=True) if somewhere]
        sum_gradients(summed, lambda flat: self._collective(dist.all_reduce, flat))

    def all_agree(self, value: bool) -> bool:
        """Whether `value` is true on every process."""
        if self.size == 1:
            return value
        return all(bool(one) for one in self._all_gather(torch.tensor([value])))

    def same(self, value: float, what: str) -> None:
        """Raise RuntimeError, on all processes, when `value` is not the same on all."""
        if self.size == 1:
            return
        values = [float(one) for one in self._all_gather(torch.tensor([value], dtype=torch.float64))]
        if len({repr(one) for one in values}) > 1:
            told = ", ".join(f"{one!r} on process {rank}" for rank, one in enumerate(values))
            raise RuntimeError(f"{what} must be the same on all processes, but is {told}: they have diverged")

    def once(self, work: Callable[[], Any]) -> Any:
        """What `work()` returns on the first process, on all of them, through JSON; the others wait without a time limit.

        When it raises, the others raise PeerError with its message.
        """
        key = self._next("once")
        if self.is_main:
            return self._work_for_all(work, key)
        self._wait_until(lambda store: store.check([key]))
        told = json.loads(self._peers.ask(lambda store: store.get(key)))
        if "error" in told:
            raise PeerError(Loss(**told["error"]))
        # Processes that took different paths would take each other's answers, and go on with them.
        assert told["work"] == getattr(work, "__qualname__", ""), f"process 0 did {told['work']}, process {self.rank} waits for {work}"
        return told["value"]

    def meet(self) -> None:
        """Return when every process has come here, however long the last one takes."""
        if self.size == 1:
            return
        key = self._next("meet")
        self._peers.ask(lambda store: store.add(key, 1))
        self._wait_until(lambda store: store.add(key, 0) == self.size)

    def check(self) -> None:
        """Raise PeerError when another process is known to have ended; costs a microsecond, for long loops without others."""
        if self._peers is not None:
            self._peers.check()

    def lost(self) -> str | None:
        """Which other process failed or died first; None when none did, or one was only interrupted.

        For a process that is told to end, as torchrun does when another has failed, and records why.
        """
        return None if self._peers is None else self._peers.lost()

    def fail(self, error: BaseException) -> None:
        """Tell the others why this process ends, unless another ended before it."""
        if self._peers is None:
            return
        try:
            self._peers.publish(Loss.by(error, self.rank, self.size))
        except KeyboardInterrupt:
            pass  # torchrun ends all when one has ended; `error` came first

    def close(self) -> None:
        """Leave together, when all have come to their end."""
        if self._peers is not None:
            self.meet()
            self._peers.leave()
            self._peers = None
        if dist.is_initialized():  # under torchrun accelerate makes a group even for one process
            dist.destroy_process_group()

    def _work_for_all(self, work: Callable[[], Any], key: str) -> Any:
        try:
            text = json.dumps({"work": getattr(work, "__qualname__", ""), "value": work()})
        except BaseException as error:
            with suppress(PeerError):  # nobody left to tell, perhaps; `error` came first
                self._tell(key, json.dumps({"error": asdict(Loss.by(error, self.rank, self.size))}))
            raise
        self._tell(key, text)
        return json.loads(text)["value"]

    def _tell(self, key: str, text: str) -> None:
        if self._peers is not None:
            self._peers.ask(lambda store: store.set(key, text))

    def _next(self, what: str) -> str:
        self._turn += 1
        return f"{what}/{self._turn}"

    def _wait_until(self, question: Callable[[dist.Store], bool]) -> None:
        while not self._peers.ask(question):
            self._peers.check()
            time.sleep(POLL_SECONDS)

    def _all_gather(self, part: torch.Tensor) -> list[torch.Tensor]:
        parts = [torch.empty_like(part) for _ in range(self.size)]
        self._collective(dist.all_gather, parts, part)
        return parts

    def _collective(self, start: Callable[..., dist.Work], *arguments: Any) -> None:
        """Start a collective and wait for it in Python, where a signal or the end of another process is noticed."""
        work, waited = start(*arguments, async_op=True), Silence()
        try:
            while not work.is_completed():
                self._peers.check()
                if waited.of(work) > COLLECTIVE_SECONDS:
                    raise RuntimeError(f"the others did not come within {COLLECTIVE_SECONDS} s")
                time.sleep(COLLECTIVE_POLL_SECONDS)
            work.wait()
        except PeerError:
            raise
        except RuntimeError as error:
            self._explain(error)

    def _explain(self, error: RuntimeError) -> None:
        """Raise why a collective failed, which the watch may hear a moment later."""
        until = time.monotonic() + HEAR_SECONDS
        while time.monotonic() < until:
            self._peers.check()
            time.sleep(POLL_SECONDS)
        text = f"process {self.rank} of {self.size} lost the others ({error}); their own messages say why; {CURE}"
        raise PeerError(Loss(self.rank, text)) from error
