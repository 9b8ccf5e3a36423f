"""The sum of gradients over all processes, in flat buckets."""

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import nn

from pyserini_ance.distributed.world import World

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
    summed = [
        parameter for parameter, anywhere in zip(trained, has_gradient.tolist(), strict=True) if anywhere
    ]
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
