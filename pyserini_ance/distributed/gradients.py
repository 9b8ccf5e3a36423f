"""Gradients laid end to end, so that a few collectives sum them instead of one a parameter."""

from collections.abc import Callable, Iterable, Iterator

import torch

BUCKET_BYTES = 64 * 2**20  # what lies beside the gradients while they are summed


def sum_gradients(parameters: list[torch.nn.Parameter], all_reduce: Callable[[torch.Tensor], None]) -> None:
    """Replace each gradient by what `all_reduce` leaves of it; a parameter without one takes part with zeros."""
    for bucket in buckets(parameters):
        gradients = [zero_if_none(parameter) for parameter in bucket]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        all_reduce(flat)
        for gradient, summed in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(summed.view_as(gradient))


def zero_if_none(parameter: torch.nn.Parameter) -> torch.Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def buckets(parameters: Iterable[torch.nn.Parameter]) -> Iterator[list[torch.nn.Parameter]]:
    """Parameters of one device and type, in order, as many as fit a bucket; a larger one has a bucket of its own."""
    alike: dict[tuple, list[torch.nn.Parameter]] = {}
    for parameter in parameters:
        alike.setdefault((parameter.device, parameter.dtype), []).append(parameter)
    for group in alike.values():
        bucket, held = [], 0
        for parameter in group:
            size = parameter.numel() * parameter.element_size()
            if bucket and held + size > BUCKET_BYTES:
                yield bucket
                bucket, held = [], 0
            bucket.append(parameter)
            held += size
        yield bucket
