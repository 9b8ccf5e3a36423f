"""World: the processes that torchrun started for one command, or the one process without it.

Every process runs the same program. Collectives (`gather`, `sum_gradients`) are called by all, at the same point, with
work of even length before them; where one process works and the others wait, or work is of uneven length, they wait by
polling a store (`once`, `meet`), which costs no processor and never times out.
"""

import json
import os
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

COLLECTIVE_SECONDS = 60  # all are there when one begins: who does not come within it is lost
POLL_SECONDS = 0.05


class World:
    def __init__(self, rank: int = 0, size: int = 1, store: dist.Store | None = None):
        self.rank, self.size, self._store = rank, size, store
        self._turn = 0

    @classmethod
    def join(cls, device: str) -> "World":
        """The world that torchrun's environment describes; `device` is a recipe's setting (auto, cpu, cuda)."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        on_gpu = device != "cpu" and torch.cuda.is_available()
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=timedelta(seconds=COLLECTIVE_SECONDS))
        return cls(dist.get_rank(), size, dist.distributed_c10d._get_default_store())

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def gather(self, part: torch.Tensor) -> list[torch.Tensor]:
        """Every process's `part` (n_r, ...), in rank order, without gradients; first dimensions may differ."""
        if self.size == 1:
            return [part.detach()]
        rows = [torch.zeros(1, dtype=torch.int64, device=part.device) for _ in range(self.size)]
        dist.all_gather(rows, torch.tensor([len(part)], device=part.device))
        most = max(int(n) for n in rows)
        padded = torch.zeros((most, *part.shape[1:]), dtype=part.dtype, device=part.device)
        padded[: len(part)] = part.detach()
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded)
        return [one[: int(n)] for one, n in zip(parts, rows, strict=True)]

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace each gradient by the sum over all processes; a parameter without one anywhere keeps none."""
        if self.size == 1:
            return
        parameters = [p for p in parameters if p.requires_grad]
        there = torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32, device=parameters[0].device)
        dist.all_reduce(there, dist.ReduceOp.MAX)
        for parameter, somewhere in zip(parameters, there.tolist(), strict=True):
            if somewhere:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                dist.all_reduce(parameter.grad)

    def once(self, work: Callable[[], Any]) -> Any:
        """What `work()` returns on the first process, on all of them (through JSON); the others wait without a time limit."""
        if self.size == 1:
            return work()
        self._turn += 1
        key = f"once/{self._turn}"
        if self.is_main:
            value = work()
            self._store.set(key, json.dumps(value))
            return json.loads(json.dumps(value))
        while not self._store.check([key]):
            time.sleep(POLL_SECONDS)
        return json.loads(self._store.get(key))

    def meet(self) -> None:
        """Return when every process has come here, however long the last one takes."""
        if self.size == 1:
            return
        self._turn += 1
        key = f"meet/{self._turn}"
        self._store.add(key, 1)
        while self._store.add(key, 0) < self.size:
            time.sleep(POLL_SECONDS)

    def all_agree(self, value: bool) -> bool:
        """Whether `value` is true on every process."""
        if self.size == 1:
            return value
        flag = torch.tensor([int(value)], dtype=torch.int32)
        dist.all_reduce(flag, dist.ReduceOp.MIN)
        return bool(flag)

    def slice_of(self, count: int) -> slice:
        """This process's part of `count` things in order; the parts of all ranks together are everything, each once."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)
