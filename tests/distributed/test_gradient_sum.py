import pytest
import torch
from torch import nn

from pyserini_ance.distributed import world as worlds
from pyserini_ance.distributed.world import World, sum_gradients

SHAPES = [(3, 4), (5,), (2, 2), (1,), (6,), (3,)]
# The ranks that have a gradient, for each parameter; the last is frozen.
HAVE = [(0, 1, 2), (1,), (), (0, 2), (0, 1, 2), ()]


def gradient(parameter: int, rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor | None:
    if rank not in HAVE[parameter]:
        return None
    generator = torch.Generator().manual_seed(10 * parameter + rank)
    return torch.randn(SHAPES[parameter], generator=generator).to(dtype)


def summed_gradients(world, bucket_bytes):
    """The gradients, and how many collectives summed them."""
    worlds.BUCKET_BYTES = bucket_bytes
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    parameters[4] = nn.Parameter(torch.zeros(SHAPES[4], dtype=torch.float64))
    parameters[5].requires_grad = False
    for i, parameter in enumerate(parameters):
        parameter.grad = gradient(i, world.rank, parameter.dtype)
    collectives, start = [], world.start
    world.start = lambda *arguments: (collectives.append(arguments), start(*arguments))[1]
    sum_gradients(iter(parameters), world)
    return [parameter.grad for parameter in parameters], len(collectives)


@pytest.mark.parametrize(("bucket_bytes", "collectives"), [(2**20, 3), (60, 4), (1, 5)])
def test_gradients_are_summed_and_parameters_without_one_keep_none(run_processes, bucket_bytes, collectives):
    ranks = run_processes(3, summed_gradients, bucket_bytes)
    assert [calls for _, calls in ranks] == [collectives] * 3
    for i, summed in enumerate(zip(*(grads for grads, _ in ranks), strict=True)):
        if not HAVE[i]:
            assert summed == (None, None, None)
            continue
        expected = sum(gradient(i, rank, summed[0].dtype) for rank in HAVE[i])
        torch.testing.assert_close(summed[0], expected, rtol=1e-6, atol=1e-6)
        assert all(torch.equal(one.view(torch.uint8), summed[0].view(torch.uint8)) for one in summed)


def test_one_process_sums_nothing():
    weight = nn.Parameter(torch.ones(3))
    weight.sum().backward()
    sum_gradients([weight], World())
    assert weight.grad.tolist() == [1.0] * 3
