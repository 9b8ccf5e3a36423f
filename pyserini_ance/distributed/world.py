"""World: the processes that torchrun started for one command, or a single process without torchrun.

Every process runs the same program. All processes call a collective (`gather`, `exchange`) at the same
point, after work of even length. Where one process works and the others wait, or work is of uneven length,
they wait without a time limit (`on_main`, `barrier`). When a process ends before the others, they raise
PeerError where they wait for it, as soon as its connections are closed or a collective times out; torchrun
ends them, too. Gradients are summed over all processes in flat buckets.
"""

import functools
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from pyserini_ance.distributed.failures import PeerError, begin_shutdown

# All processes are ready when a collective begins; in the patient group one may work while the others wait.
COLLECTIVE_SECONDS = 60
PATIENT_SECONDS = 365 * 24 * 3600
START_SECONDS = 600  # the first import from a slow disk can take minutes on some hosts
# gloo on one host needs 0.5 to 1 ms for the smallest collective; a long wait takes hardly any processor time.
SHORTEST_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.0002, 0.05
ERROR_SECONDS = 10  # for an error of the main process to reach the others, which may wait elsewhere
_joins = itertools.count()  # a process can join again after it has left: every world has its own keys


def device_of(setting: str) -> str:
    """Return this process's device for a recipe's `setting` (auto, cpu, cuda, cuda:N).

    Under torchrun every process has its own GPU: that of its LOCAL_RANK, counted from N. Raises ValueError
    when there are no GPUs, or too few.
    """
    has_gpu = torch.cuda.is_available()
    if setting == "cpu" or (setting == "auto" and not has_gpu):
        return "cpu"
    if not has_gpu:
        cure = "run `pyserini-ance doctor` for the cause, or use device: auto"
        raise ValueError(f"device is {setting}, but torch finds no GPU; {cure}")
    first, processes = int(setting.partition(":")[2] or 0), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if first + processes > (gpus := torch.cuda.device_count()):
        raise ValueError(
            f"{processes} processes of this host, the first on GPU {first}, do not have a GPU each: "
            f"torch sees {gpus}; use fewer --nproc-per-node, a lower cuda:N, or device=cpu"
        )
    if "LOCAL_RANK" not in os.environ:
        return "cuda" if setting == "auto" else setting
    return f"cuda:{first + int(os.environ['LOCAL_RANK'])}"


@functools.cache
def _rendezvous() -> tuple[Store, int, int]:
    """The store that torchrun's agent or process 0 holds, this process's rank, and the number of processes.

    The store stays open while this process lives.
    """
    return next(rendezvous("env://", timeout=timedelta(seconds=START_SECONDS)))


class World:
    """`rank` of `size` processes. `patient`: the process group whose collectives have no time limit.

    `device` is where this process computes: cpu, cuda, or cuda:N under torchrun.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, device: str = "cpu", patient: dist.ProcessGroup | None = None
    ):
        self.rank, self.size, self.device, self._patient = rank, size, device, patient
        self._for_device: list[dist.Work] = []  # that the host has not waited for

    @classmethod
    def join(cls, device: str) -> "World":
        """Join the world that torchrun's environment describes, when all its processes do; `device` is a
        recipe's setting."""
        device = device_of(device)
        if ":" in device:
            torch.cuda.set_device(device)
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls(device=device)
        store, rank, size = _rendezvous()
        name = f"pyserini_ance/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_joins)}"
        timeout = timedelta(seconds=COLLECTIVE_SECONDS)
        backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
        start = PrefixStore(name, store)
        start.set_timeout(timedelta(seconds=START_SECONDS))
        dist.init_process_group(backend, store=start, rank=rank, world_size=size, timeout=timeout)
        patient = dist.new_group(backend="gloo", timeout=timedelta(seconds=PATIENT_SECONDS))
        return cls(rank, size, device, patient)

    @contextmanager
    def session(self) -> Iterator["World"]:
        """Run a command's work; a clean end closes the world."""
        try:
            yield self
        except BaseException:
            begin_shutdown()
            raise
        self.barrier()
        if dist.is_initialized():  # under torchrun accelerate makes a group even for one process
            dist.destroy_process_group()

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def gather(
        self, tensor: torch.Tensor, lengths: Sequence[int] | None = None, for_device: bool = False
    ) -> list[torch.Tensor]:
        """Return every process's `tensor` (n_r, ...) in rank order, without gradients; n_r may differ.

        `lengths` are the n_r; None: they are gathered first. With `for_device` the host does not wait for a
        GPU: operators that it launches from now on do. No weight may be changed by the result before the next
        `wait`.
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
        self.wait([self.start(dist.all_to_all_single, received, torch.cat(list(parts)), from_each, to_each)])
        return list(received.split(from_each))

    def start(self, collective: Callable[..., Any], *arguments: Any) -> dist.Work:
        """Start a collective of torch.distributed and return at once; pass the result to `wait`.

        All processes start the same collectives in the same order. Raises PeerError if another one has ended.
        """
        try:
            return collective(*arguments, async_op=True)
        except RuntimeError as error:
            raise self._lost(error) from error

    def wait(self, works: Iterable[dist.Work], seconds: float = math.inf) -> None:
        """Wait for collectives, at most `seconds`, in Python, where signals are noticed.

        A GPU's host waits, too. Raises PeerError if another process has ended or does not join.
        """
        works = [*self._for_device, *works]
        self._for_device.clear()
        pause, end = SHORTEST_POLL_SECONDS, time.monotonic() + seconds
        try:
            for work in works:
                while not work.is_completed():
                    if time.monotonic() > end:
                        return
                    time.sleep(pause)
                    pause = min(1.1 * pause, LONGEST_POLL_SECONDS)
                work.wait()
        except RuntimeError as error:
            raise self._lost(error) from error

    def all_agree(self, value: bool) -> bool:
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

        The others wait without a time limit. When `work` raises, they raise PeerError with its message, or
        KeyboardInterrupt as it does.
        """
        answer: dict[str, Any] = {"work": getattr(work, "__qualname__", "")}
        if self.is_main:
            try:
                text = json.dumps({**answer, "value": work()})
            except BaseException as error:
                stopped = isinstance(error, KeyboardInterrupt)
                answer["error"] = f"process 0 of {self.size} failed: {type(error).__name__}: {error}"
                with suppress(PeerError):  # perhaps no other process is left; `error` came first
                    self._broadcast(json.dumps({**answer, "stopped": stopped}), ERROR_SECONDS)
                raise
            return json.loads(self._broadcast(text))["value"]
        received = json.loads(self._broadcast(""))
        # Processes that took different paths would take each other's answers, and continue with them.
        assert received["work"] == answer["work"], (
            f"process 0 did {received['work']}, process {self.rank} waits for {work}"
        )
        if "error" in received:
            raise KeyboardInterrupt if received["stopped"] else PeerError(received["error"])
        return received["value"]

    def barrier(self) -> None:
        """Return when every process has called this, however long the last one takes."""
        if self.size > 1:
            self.wait([self.start(dist.all_reduce, torch.zeros(1), dist.ReduceOp.SUM, self._patient)])

    def _broadcast(self, text: str, seconds: float = math.inf) -> str:
        """Return the main process's `text` on all processes."""
        if self.size == 1:
            return text
        content = torch.frombuffer(bytearray(text.encode() or b" "), dtype=torch.uint8)
        length = torch.tensor([len(content)])
        self.wait([self.start(dist.broadcast, length, 0, self._patient)], seconds)
        if not self.is_main:
            content = torch.empty(int(length), dtype=torch.uint8)
        self.wait([self.start(dist.broadcast, content, 0, self._patient)], seconds)
        return content.numpy().tobytes().decode()

    def _all_gather(self, tensor: torch.Tensor, for_device: bool = False) -> list[torch.Tensor]:
        gathered = [torch.empty_like(tensor) for _ in range(self.size)]
        work = self.start(dist.all_gather, gathered, tensor)
        if for_device:
            work.wait()  # lets the GPU's stream wait, not the host
            self._for_device.append(work)
        else:
            self.wait([work])
        return gathered

    def _lost(self, error: RuntimeError) -> PeerError:
        cause = str(error).splitlines()[0]
        why = "their own messages say why. Start again, training with --resume"
        return PeerError(f"process {self.rank} of {self.size} lost the others ({cause}); {why}")


BUCKET_BYTES = 64 * 2**20


def sum_gradients(parameters: Iterable[nn.Parameter], world: World) -> None:
    """Replace each gradient by its sum over all processes; one that is None on all of them stays None.

    Called by all processes, after the backward passes of a step. The sums have the same bits on all. Raises
    PeerError when another process has ended; gradients are then not to be used.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if world.size == 1 or not trained:
        return
    has_gradient = torch.tensor([parameter.grad is not None for parameter in trained], dtype=torch.int32)
    world.wait([world.start(dist.all_reduce, has_gradient, dist.ReduceOp.MAX)])
    summed = [one for one, anywhere in zip(trained, has_gradient.tolist(), strict=True) if anywhere]
    for parameter in summed:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    grouped = [[p.grad for p in bucket if p.grad is not None] for bucket in buckets(summed)]
    flats = [torch.cat([gradient.reshape(-1) for gradient in gradients]) for gradients in grouped]
    world.wait([world.start(dist.all_reduce, flat) for flat in flats])
    for gradients, flat in zip(grouped, flats, strict=True):
        parts = flat.split([gradient.numel() for gradient in gradients])
        sums = [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]
        torch._foreach_copy_(gradients, sums)


def buckets(parameters: Iterable[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Yield parameters of one device and type, in order, up to BUCKET_BYTES together. A larger parameter gets
    its own bucket."""
    groups: dict[tuple, list[nn.Parameter]] = {}
    for parameter in parameters:
        groups.setdefault((parameter.device, parameter.dtype), []).append(parameter)
    for group in groups.values():
        bucket: list[nn.Parameter] = []
        size_bytes = 0
        for parameter in group:
            parameter_bytes = parameter.numel() * parameter.element_size()
            if bucket and size_bytes + parameter_bytes > BUCKET_BYTES:
                yield bucket
                bucket, size_bytes = [], 0
            bucket.append(parameter)
            size_bytes += parameter_bytes
        yield bucket
