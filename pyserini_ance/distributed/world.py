"""World: the processes that torchrun started for one command, or a single process without torchrun.

Every process runs the same program. All processes call a collective (`gather`, `exchange`) at the same
point, after work of even length. Where one process works and the others wait, or work is of uneven length,
they wait by polling a store (`on_main`, `barrier`), which takes no processor time and has no time limit. When
a process ends before the others, they raise PeerError within a minute, wherever they wait, or when they call
`check`.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from pyserini_ance.distributed.failures import CURE, PeerError, PeerLoss, begin_shutdown
from pyserini_ance.distributed.peers import POLL_SECONDS, PROPAGATION_SECONDS, Peers, StallTimer
from pyserini_ance.distributed.process_group import COLLECTIVE_SECONDS, device_of, join

COLLECTIVE_POLL_SECONDS = 0.0002  # gloo on one host needs 0.5 to 1 ms for the smallest collective


class World:
    """`rank` of `size` processes, and the peers that show when one of them ends.

    `device` is where this process computes: cpu, cuda, or cuda:N under torchrun.
    """

    def __init__(self, rank: int = 0, size: int = 1, device: str = "cpu", peers: Peers | None = None):
        self.rank, self.size, self.device, self._peers = rank, size, device, peers
        self._calls = 0
        self._for_device: list[dist.Work] = []  # that the host has not waited for

    @classmethod
    def join(cls, device: str) -> "World":
        """Join the world that torchrun's environment describes; `device` is a recipe's setting."""
        device = device_of(device)
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls(device=device)
        peers = join(device)
        return cls(dist.get_rank(), dist.get_world_size(), device, peers)

    @contextmanager
    def session(self) -> Iterator["World"]:
        """Run a command's work: an error inside is reported to the others, a clean end closes the world."""
        try:
            with self.reraise_peer_error():
                yield self
        except BaseException as error:
            self.fail(error)
            raise
        self.close()

    @contextmanager
    def reraise_peer_error(self) -> Iterator[None]:
        """Replace an error by the one that caused it.

        Use it inside everything that records how the work ends.

        torchrun ends all processes by a signal when one has ended. An interruption therefore becomes a
        PeerError when another process was lost, and a PeerError about an interrupted process becomes a
        KeyboardInterrupt.
        """
        try:
            yield
        except BaseException as error:
            begin_shutdown()
            if isinstance(error, KeyboardInterrupt) or (
                isinstance(error, PeerError) and error.loss.interrupted
            ):
                if self.lost():
                    self.check()
                raise KeyboardInterrupt from error
            raise

    @property
    def is_main(self) -> bool:
        """Whether this is the main process, rank 0."""
        return self.rank == 0

    def gather(
        self, tensor: torch.Tensor, lengths: Sequence[int] | None = None, for_device: bool = False
    ) -> list[torch.Tensor]:
        """Return every process's `tensor` (n_r, ...) in rank order, without gradients; n_r may differ.

        `lengths` are the n_r; None: they are gathered first. With `for_device` the host does not wait for a
        GPU: operators that it launches from now on do, and the next `wait` raises if another process has
        ended. Until then no weight may be changed by the result.
        """
        tensor = tensor.detach()
        if self.size == 1:
            return [tensor]
        if lengths is None:
            lengths = [int(n) for n in self._all_gather(torch.tensor([len(tensor)]))]
        padded = tensor.new_zeros((max(lengths), *tensor.shape[1:]))
        padded[: len(tensor)] = tensor
        gathered = self._all_gather(padded, for_device and tensor.device.type != "cpu")
        return [of_rank[:n] for of_rank, n in zip(gathered, lengths, strict=True)]

    def gather_rows(self, own: np.ndarray) -> np.ndarray:
        """The rows (A, ...) of all shares in order; all processes make the call, after work of any length."""
        if self.size == 1:
            return own
        self.barrier()
        parts = self.gather(torch.from_numpy(np.ascontiguousarray(own)))
        return np.concatenate([part.numpy() for part in parts])

    def exchange(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Send `parts[r]` (n_r, ...) to process r; return what every process sent to this one, in rank order.

        Part r has the same shape and type on all processes.
        """
        if self.size == 1:
            return list(parts)
        own = parts[self.rank]
        received = own.new_empty((self.size * len(own), *own.shape[1:]))
        to_each, from_each = [len(part) for part in parts], [len(own)] * self.size
        sent = torch.cat(list(parts))
        self.wait([self.start(dist.all_to_all_single, received, sent, from_each, to_each)])
        return list(received.split(from_each))

    def start(self, collective: Callable[..., Any], *arguments: Any) -> dist.Work:
        """Start a collective of torch.distributed and return at once; pass the result to `wait`.

        All processes start the same collectives in the same order. Raises PeerError if another one has ended.
        """
        try:
            work: dist.Work = collective(*arguments, async_op=True)
        except RuntimeError as error:
            self._raise_cause(error)
        return work

    def wait(self, works: Iterable[dist.Work]) -> None:
        """Wait for collectives in Python, where signals and the end of other processes are noticed.

        A GPU's host waits too: weights that were updated by a collective that has failed could not be saved.
        Raises PeerError if another process has ended or does not join.
        """
        works = [*self._for_device, *works]
        self._for_device.clear()
        try:
            for work in works:
                timer = StallTimer()
                while not work.is_completed():
                    self.check()
                    if timer.unchanged_seconds(work) > COLLECTIVE_SECONDS:
                        raise RuntimeError(f"the others did not join within {COLLECTIVE_SECONDS} s")
                    time.sleep(COLLECTIVE_POLL_SECONDS)
                work.wait()
        except PeerError:
            raise
        except RuntimeError as error:
            self._raise_cause(error)
        if self.device != "cpu":
            self.check()  # the end of another process completes the collectives of a GPU, with any result

    def all_agree(self, value: bool) -> bool:
        """Whether `value` is true on every process."""
        if self.size == 1:
            return value
        return all(bool(gathered) for gathered in self._all_gather(torch.tensor([value])))

    def assert_same(self, value: float, what: str) -> None:
        """Raise RuntimeError on all processes when `value` differs between them."""
        if self.size == 1:
            return
        values = [float(one) for one in self._all_gather(torch.tensor([value], dtype=torch.float64))]
        if len({repr(one) for one in values}) > 1:
            listed = ", ".join(f"{one!r} on process {rank}" for rank, one in enumerate(values))
            raise RuntimeError(
                f"{what} must be the same on all processes, but is {listed}: the processes have diverged"
            )

    def on_main(self, work: Callable[[], Any]) -> Any:
        """Run `work()` on the main process and return its value on all processes, through JSON.

        The others wait without a time limit. When `work` raises, they raise PeerError with its message.
        """
        key = self._next_key("on_main")
        if self.is_main:
            return self._work_for_all(work, key)
        self._wait_until(lambda store: store.check([key]))
        answer = json.loads(self._connected().call(lambda store: store.get(key)))
        if "error" in answer:
            raise PeerError(PeerLoss(**answer["error"]))
        # Processes that took different paths would take each other's answers, and continue with them.
        assert answer["work"] == getattr(work, "__qualname__", ""), (
            f"process 0 did {answer['work']}, process {self.rank} waits for {work}"
        )
        return answer["value"]

    def barrier(self) -> None:
        """Return when every process has called this, however long the last one takes."""
        if self.size == 1:
            return
        key = self._next_key("barrier")
        self._connected().call(lambda store: store.add(key, 1))
        self._wait_until(lambda store: store.add(key, 0) == self.size)

    def check(self) -> None:
        """Raise PeerError when another process is known to have ended.

        Costs a microsecond, for use in long loops.
        """
        if self._peers is not None:
            self._peers.check()

    def lost(self) -> str | None:
        """Which other process failed or died first; None when none did, or one was only interrupted.

        For a process that receives a signal, as torchrun sends it when another process has failed, and
        records why.
        """
        return None if self._peers is None else self._peers.lost()

    def fail(self, error: BaseException) -> None:
        """Tell the others why this process ends, unless another process ended before it."""
        if self._peers is None:
            return
        with suppress(KeyboardInterrupt):  # torchrun ends all when one has ended; `error` came first
            self._peers.report(PeerLoss.from_error(error, self.rank, self.size))

    def close(self) -> None:
        """Leave together with all other processes, when all have come to their end."""
        if self._peers is not None:
            self.barrier()
            self._peers.leave()
            self._peers = None
        if dist.is_initialized():  # under torchrun accelerate makes a group even for one process
            dist.destroy_process_group()

    def _work_for_all(self, work: Callable[[], Any], key: str) -> Any:
        try:
            text = json.dumps({"work": getattr(work, "__qualname__", ""), "value": work()})
        except BaseException as error:
            with suppress(PeerError):  # perhaps no other process is left; `error` came first
                self._set(
                    key, json.dumps({"error": asdict(PeerLoss.from_error(error, self.rank, self.size))})
                )
            raise
        self._set(key, text)
        return json.loads(text)["value"]

    def _set(self, key: str, text: str) -> None:
        if self._peers is not None:
            self._peers.call(lambda store: store.set(key, text))

    def _next_key(self, kind: str) -> str:
        self._calls += 1
        return f"{kind}/{self._calls}"

    def _connected(self) -> Peers:
        assert self._peers is not None, "the world has been closed"
        return self._peers

    def _wait_until(self, condition: Callable[[Store], bool]) -> None:
        peers = self._connected()
        while not peers.call(condition):
            peers.check()
            time.sleep(POLL_SECONDS)

    def _all_gather(self, tensor: torch.Tensor, for_device: bool = False) -> list[torch.Tensor]:
        gathered = [torch.empty_like(tensor) for _ in range(self.size)]
        work = self.start(dist.all_gather, gathered, tensor)
        if for_device:
            work.wait()  # lets the GPU's stream wait, not the host
            self._for_device.append(work)
        else:
            self.wait([work])
        return gathered

    def _raise_cause(self, error: RuntimeError) -> NoReturn:
        """Raise the reason why a collective failed, which may arrive a moment later."""
        end = time.monotonic() + PROPAGATION_SECONDS
        while time.monotonic() < end:
            self.check()
            time.sleep(POLL_SECONDS)
        message = (
            f"process {self.rank} of {self.size} lost the others ({error}); "
            f"their own messages say why; {CURE}"
        )
        raise PeerError(PeerLoss(self.rank, message)) from error
