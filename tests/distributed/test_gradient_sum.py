"""GradientSum in real gloo processes, against sums that all begin after the backward pass."""

import os
import signal

import pytest
import torch
import torch.distributed as dist
from torch import nn

from pyserini_ance.distributed import gradient_sum
from pyserini_ance.distributed.failures import PeerError
from pyserini_ance.distributed.gradient_sum import GradientSum, buckets
from pyserini_ance.distributed.world import World

SHAPES = [(3, 4), (5,), (2, 2), (1,), (6,), (3,)]
# The ranks that have a gradient, for each parameter; the last is frozen.
HAVE = [(0, 1, 2), (1,), (), (0, 2), (0, 1, 2), ()]


def gradient(parameter: int, rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor | None:
    if rank not in HAVE[parameter]:
        return None
    generator = torch.Generator().manual_seed(10 * parameter + rank)
    return torch.randn(SHAPES[parameter], generator=generator).to(dtype)


def count_collectives(world: World) -> list[int]:
    """The sizes of all tensors that are summed from now on."""
    sizes, start = [], world.start
    world.start = lambda collective, tensor, *more: (
        sizes.append(tensor.numel()),
        start(collective, tensor, *more),
    )[1]
    return sizes


def summed_gradients(world, bucket_bytes):
    """The gradients of two steps, which need a message of flags each."""
    gradient_sum.BUCKET_BYTES = bucket_bytes
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    parameters[4] = nn.Parameter(torch.zeros(SHAPES[4], dtype=torch.float64))
    parameters[5].requires_grad = False
    sizes, sums, found = count_collectives(world), GradientSum(iter(parameters), world), []
    for _ in range(2):
        for i, parameter in enumerate(parameters):
            parameter.grad = gradient(i, world.rank, parameter.dtype)
        sums.finish()
        found.append(([parameter.grad for parameter in parameters], len(sizes)))
        sizes.clear()
    return found


@pytest.mark.parametrize(("bucket_bytes", "collectives"), [(2**20, 3), (60, 4), (1, 5)])
def test_gradients_are_summed_and_a_parameter_without_any_keeps_none(
    run_processes, bucket_bytes, collectives
):
    for ranks in zip(*run_processes(3, summed_gradients, bucket_bytes), strict=True):
        assert [calls for _, calls in ranks] == [collectives] * 3
        for i, summed in enumerate(zip(*(grads for grads, _ in ranks), strict=True)):
            if not HAVE[i]:
                assert summed == (None, None, None)
                continue
            expected = sum(gradient(i, rank, summed[0].dtype) for rank in HAVE[i])
            torch.testing.assert_close(summed[0], expected, rtol=1e-6, atol=1e-6)
            assert all(torch.equal(one.view(torch.uint8), summed[0].view(torch.uint8)) for one in summed)


class Layers(nn.Module):
    """Linear layers, of which a text may leave out some; `unused` never has a gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(7, 7) for _ in range(5))
        self.unused = nn.Linear(3, 3)
        self.layers[1].requires_grad_(False)

    def forward(self, hidden: torch.Tensor, left_out: set[int]) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            hidden = hidden if number in left_out else hidden + torch.tanh(layer(hidden))
        return hidden


# By step and rank (modulo 3): the layers that each of two chunks leaves out; None: no such chunk.
EVERYWHERE = [(set(), set()), (set(), set()), (set(), set())]
STEPS = [
    EVERYWHERE,
    EVERYWHERE,
    [({2}, {2}), (set(), {4}), (None, None)],  # layers 2 and 4 without a gradient on some processes
    EVERYWHERE,
    [({3}, {3}), ({3}, {3}), ({3}, None)],  # layer 3 on no process any longer
    [({3}, {3}), ({0, 3}, {3}), ({3}, {3})],
    EVERYWHERE,  # and again
]


def plain_sum(world: World, parameters: list[nn.Parameter]) -> None:
    """Flags first, then one bucket after the other, all after the backward pass."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    flags = torch.tensor([parameter.grad is not None for parameter in trained], dtype=torch.int32)
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    for bucket in buckets(p for p, anywhere in zip(trained, flags.tolist(), strict=True) if anywhere):
        for parameter in bucket:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        flat = torch.cat([parameter.grad.reshape(-1) for parameter in bucket])
        dist.all_reduce(flat)
        for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
            parameter.grad.copy_(part.view_as(parameter))


def train(world: World, overlapped: bool) -> tuple[list[list[torch.Tensor | None]], list[int]]:
    """The gradients of each step, and how many sums had started when the backward pass ended."""
    gradient_sum.BUCKET_BYTES = 300  # a layer
    model = Layers()
    parameters, sums = list(model.parameters()), GradientSum(model.parameters(), world)
    found, started = [], []
    for step, ranks in enumerate(STEPS):
        model.zero_grad(set_to_none=True)
        chunks = [left_out for left_out in ranks[world.rank % 3] if left_out is not None]
        for number, left_out in enumerate(chunks):
            torch.manual_seed(100 * step + 10 * world.rank + number)
            loss = model(torch.randn(4, 7), left_out).pow(2).sum()
            if overlapped and number == len(chunks) - 1:
                with sums.last_backward():
                    loss.backward()
            else:
                loss.backward()
        started.append(len(sums._sums))
        sums.finish() if overlapped else plain_sum(world, parameters)
        found.append([None if p.grad is None else p.grad.clone() for p in parameters])
    return found, started


def overlapped_and_plain(world: World):
    return train(world, True), train(world, False)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_sums_that_begin_in_the_backward_pass_have_the_same_bits(run_processes, size):
    results = run_processes(size, overlapped_and_plain)
    for (overlapped, started), (plain, _) in results:
        assert started[:2] == [0, 4]  # unknown in the first step; then each layer that is trained
        for step, (found, expected) in enumerate(zip(overlapped, plain, strict=True)):
            for one, other in zip(found, expected, strict=True):
                assert (one is None) == (other is None), f"step {step}"
                assert one is None or torch.equal(one, other), f"step {step}"
    for (found, _), _ in results[1:]:  # the same bits on all processes
        for of_step, of_first in zip(found, results[0][0][0], strict=True):
            assert all(a is b or torch.equal(a, b) for a, b in zip(of_step, of_first, strict=True))


def pass_back_again(world: World):
    """A second backward pass comes after the one that was said to be the last, on one process."""
    weight = nn.Parameter(torch.ones(3))
    sums, found = GradientSum([weight], world), []
    for step in range(3):
        weight.grad = None
        with sums.last_backward():
            (weight * (1 + world.rank)).sum().backward()
        if step and world.rank == 1:
            (weight * 10).sum().backward()
        sums.finish()
        found.append(weight.grad.tolist())
    return found


def test_a_gradient_that_changes_after_its_sum_has_begun_is_summed_again(run_processes):
    assert run_processes(2, pass_back_again) == [[[3.0] * 3, [13.0] * 3, [13.0] * 3]] * 2


def end_in_a_backward_pass(world: World, ending):
    """Process 1 ends when the first sum has begun; process 0 has its own gradient then, not half a sum."""
    first, second = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3, dtype=torch.float64))
    sums = GradientSum([first, second], world)
    for step in range(2):
        first.grad = second.grad = None
        with sums.last_backward():
            if step and world.rank == 1:
                second.sum().backward()
                if isinstance(ending, BaseException):
                    raise ending
                os.kill(os.getpid(), ending)
            (first.sum() + second.sum()).backward()
        try:
            sums.finish()
        except PeerError:
            assert first.grad.tolist() == second.grad.tolist() == [1.0] * 3
            raise


@pytest.mark.parametrize("ending", [signal.SIGKILL, ValueError("seven is odd")])
def test_the_end_of_a_process_in_its_backward_pass_is_noticed(run_processes, ending):
    first, second = run_processes.ends(2, end_in_a_backward_pass, ending)
    assert first["seconds"] - second["seconds"] < 20, first
    assert "PeerError: process 1 of 2 " in first["error"].splitlines()[-1]


def test_one_process_sums_nothing():
    weight = nn.Parameter(torch.ones(3))
    sums = GradientSum([weight], World())
    with sums.last_backward():
        weight.sum().backward()
    sums.finish()
    assert weight.grad.tolist() == [1.0] * 3


def test_buckets_are_bounded_and_of_one_type(monkeypatch):
    monkeypatch.setattr(gradient_sum, "BUCKET_BYTES", 16)
    sizes = [
        (2, torch.float32),
        (1, torch.float64),
        (2, torch.float32),
        (9, torch.float32),
        (1, torch.float32),
    ]
    parameters = [nn.Parameter(torch.zeros(n, dtype=dtype)) for n, dtype in sizes]
    assert [[one.numel() for one in bucket] for bucket in buckets(parameters)] == [[2, 2], [9], [1], [1]]
    assert list(buckets([])) == []
