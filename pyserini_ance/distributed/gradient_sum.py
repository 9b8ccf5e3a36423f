"""GradientSum: the sum of gradients over all processes, which begins while the backward pass still runs."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from pyserini_ance.distributed.world import World

BUCKET_BYTES = 64 * 2**20


@dataclass(frozen=True)
class BucketSum:
    """The sum of a bucket of gradients, perhaps unfinished; `flat` (n,) has them one after the other."""

    bucket: list[nn.Parameter]
    flat: torch.Tensor
    work: dist.Work
    copied: list[tuple[torch.Tensor | None, int]]  # each gradient and its version when it was copied

    @classmethod
    def start(cls, bucket: list[nn.Parameter], world: World) -> "BucketSum":
        """Start to sum copies of the gradients over all processes, zeros for those that are None."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
        flat = torch.cat([gradient.detach().reshape(-1) for gradient in gradients])
        copied = [(p.grad, -1 if p.grad is None else p.grad._version) for p in bucket]
        return cls(bucket, flat, world.start(dist.all_reduce, flat), copied)

    @property
    def is_stale(self) -> bool:
        """Whether a gradient has changed since it was copied."""
        return any(
            parameter.grad is not gradient or (gradient is not None and gradient._version != version)
            for parameter, (gradient, version) in zip(self.bucket, self.copied, strict=True)
        )

    def write(self) -> None:
        """Replace the gradients by their finished sums."""
        for parameter in self.bucket:
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
        gradients = [parameter.grad for parameter in self.bucket if parameter.grad is not None]
        parts = self.flat.split([gradient.numel() for gradient in gradients])
        summed = [part.view_as(gradient) for part, gradient in zip(parts, gradients, strict=True)]
        torch._foreach_copy_(gradients, summed)


class GradientSum:
    """Sums the gradients of `parameters` over the processes of `world`, in flat buckets.

    As in PyTorch DDP (Li et al. 2020, arXiv:2006.15704, section 3.2.3), hooks start a bucket's sum as soon as
    its gradients are complete, last parameters first, which is about the order of the backward pass. All
    processes start all buckets in one order. The sums have the same bits on all processes, and those that
    they would have if all buckets started after the backward pass.

    Buckets are made of the parameters that had a gradient on any process in the step before. If others have
    one now, or a gradient has changed after its bucket had started, the sums are thrown away and made again:
    gradients change in `finish` alone.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], world: World):
        self._world = world
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._have_gradients = [False] * len(self._parameters)  # on any process, in the step before
        self._buckets: list[list[nn.Parameter]] = []  # in the order in which they start
        self._sums: list[BucketSum] = []  # of the first buckets

    @contextmanager
    def last_backward(self) -> Iterator[None]:
        """Start to sum the gradients that are complete with the one backward pass inside."""
        missing = [len(bucket) for bucket in self._buckets]
        bucket_of = {parameter: number for number, bucket in enumerate(self._buckets) for parameter in bucket}

        def complete(parameter: nn.Parameter) -> None:
            missing[bucket_of[parameter]] -= 1
            while len(self._sums) < len(missing) and not missing[len(self._sums)]:
                self._start_next()

        hooks = [parameter.register_post_accumulate_grad_hook(complete) for parameter in bucket_of]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def finish(self) -> None:
        """Replace each gradient by its sum over all processes; one that is None on all of them stays None.

        Called by all processes, after the backward passes of a step. Raises PeerError if another process has
        ended; all gradients are then still those of this process.
        """
        if self._world.size == 1 or not self._parameters:
            return
        self._start_rest()
        # No process knows of a gradient that only another one has, so each step has this message. It is on
        # the CPU and travels while the sums are made.
        flags = [parameter.grad is not None for parameter in self._parameters]
        message = torch.tensor([*flags, any(each.is_stale for each in self._sums)], dtype=torch.int32)
        agreed = self._world.start(dist.all_reduce, message, dist.ReduceOp.MAX)
        self._world.wait([*(each.work for each in self._sums), agreed])
        *anywhere, is_stale = map(bool, message.tolist())
        if anywhere != self._have_gradients or is_stale:
            summed = [p for p, has_gradient in zip(self._parameters, anywhere, strict=True) if has_gradient]
            self._have_gradients, self._buckets = anywhere, list(buckets(summed))[::-1]
            self._sums.clear()
            self._start_rest()
            self._world.wait([each.work for each in self._sums])
        for each in self._sums:
            each.write()
        self._sums.clear()

    def _start_rest(self) -> None:
        while len(self._sums) < len(self._buckets):
            self._start_next()

    def _start_next(self) -> None:
        self._sums.append(BucketSum.start(self._buckets[len(self._sums)], self._world))


def buckets(parameters: Iterable[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Yield parameters of one device and type, in order, up to BUCKET_BYTES together.

    A larger parameter gets its own bucket.
    """
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
