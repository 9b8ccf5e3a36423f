from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from pyserini_ance.data.token_store import Specials, TokenStore
from pyserini_ance.distributed.world import World, sum_gradients
from pyserini_ance.encoders.towers import TwoTower
from pyserini_ance.trainer.step import ChunkedEncoder, GradCache, PlainPass, TextBatch

TEXTS = [list(range(5, 5 + length)) for length in (3, 9, 1, 6, 9, 2, 4, 7)]
TOKENS = TokenStore.of_lists(TEXTS, Specials((1,), (2,), 0))
ROWS = {"query": np.array([4, 0, 2]), "document": np.array([7, 1, 0, 3, 5, 6])}
SIDES = [TextBatch(side, TOKENS, ROWS[side], length) for side, length in (("query", 8), ("document", 10))]


class Mean(nn.Module):
    def __init__(self, dropout: float):
        super().__init__()
        self.embeddings, self.linear, self.dropout = nn.Embedding(30, 6), nn.Linear(6, 5), nn.Dropout(dropout)
        self.dimension = 5

    def forward(self, side, ids, mask):
        mask = torch.ones_like(ids) if mask is None else mask
        hidden = torch.tanh(self.linear(self.dropout(self.embeddings(ids)))) * mask[..., None]
        return hidden.sum(1) / mask.sum(1, keepdim=True)


def forward(towers: TwoTower, tokens_per_batch: int, key: tuple = (1, 2), world=None) -> ChunkedEncoder:
    return ChunkedEncoder(towers, nullcontext, tokens_per_batch, torch.device("cpu"), key, world or World())


def towers(dropout: float, tied: bool = True) -> TwoTower:
    torch.manual_seed(0)
    return TwoTower(Mean(dropout), None if tied else Mean(dropout))


def gradients(module: nn.Module, backward) -> list[torch.Tensor]:
    module.zero_grad()
    backward()
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def backward(make_pass, encoder: ChunkedEncoder, texts: list[TextBatch], loss_of) -> None:
    encoded = make_pass(encoder, texts)
    encoded.backward(loss_of(*encoded.vectors.values()))


def coupled_loss(queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(queries @ documents.T, torch.tensor([1, 0, 3])) + queries.pow(3).sum()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("tokens_per_batch", "chunks"), [(1000, 1), (20, 3), (1, 6)])
def test_gradients_by_way_of_vectors_are_those_of_one_graph_with_dropout(tokens_per_batch, chunks, tied):
    module = towers(dropout=0.4, tied=tied)
    run = forward(module, tokens_per_batch)
    assert len(run.chunks(SIDES[1])) == chunks
    expected = gradients(module, lambda: coupled_loss(*map(run.forward, SIDES)).backward())
    for make_pass in (PlainPass, GradCache):
        found = gradients(module, lambda made=make_pass: backward(made, run, SIDES, coupled_loss))
        assert_close(found, expected)


def assert_close(found: list, expected: list) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def in_world(world, dropout: float, tied: bool) -> list[list[torch.Tensor]]:
    """The processes' gradients together: plain and cached, then both with one text at a time."""
    run = forward(towers(dropout, tied), 20, world=world)

    def backward_and_sum(make_pass, sides):
        backward(make_pass, run, sides, coupled_loss)
        sum_gradients(run.towers.parameters(), world)

    def summed(make_pass, sides):
        return gradients(run.towers, lambda: backward_and_sum(make_pass, sides))

    single = [replace(side, texts_per_chunk=1) for side in SIDES]
    return [summed(make_pass, sides) for sides in (SIDES, single) for make_pass in (PlainPass, GradCache)]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [2, 4])  # of four processes one has no query
def test_processes_add_up_to_one(run_processes, size, tied):
    module = towers(dropout=0.0, tied=tied)
    expected = gradients(module, lambda: coupled_loss(*map(forward(module, 20).forward, SIDES)).backward())
    for ways in run_processes(size, in_world, 0.0, tied):
        for found in ways:
            assert_close(found, expected)


def test_the_cache_repeats_each_processs_dropout(run_processes):
    ways = run_processes(2, in_world, 0.4, False)
    assert_close([g for way in ways[0] for g in way], [g for way in ways[1] for g in way])
    plain, cached, plain_single, cached_single = ways[0]
    assert_close(plain, cached)
    assert_close(plain_single, cached_single)
    assert not torch.allclose(plain[0], plain_single[0], rtol=0.1)


@pytest.mark.parametrize("make_pass", [PlainPass, GradCache])
def test_a_side_without_a_part_in_the_loss_gets_no_gradient(make_pass):
    module = towers(dropout=0.0, tied=False)
    given = (SIDES, lambda queries, documents: queries.pow(3).sum())
    found = gradients(module, lambda: backward(make_pass, forward(module, 20), *given))
    expected = gradients(module, lambda: forward(module, 20).forward(SIDES[0]).pow(3).sum().backward())
    assert [g is None for g in found] == [False] * 3 + [True] * 3
    assert_close(found[:3], expected[:3])


def test_dropout_depends_on_the_key_and_the_process_alone():
    module = towers(dropout=0.4)
    first = forward(module, 20, (1, 2)).forward(SIDES[0])
    torch.rand(7)
    assert torch.equal(first, forward(module, 20, (1, 2)).forward(SIDES[0]))
    assert not torch.equal(first, forward(module, 20, (1, 3)).forward(SIDES[0]))
    assert torch.equal(first, forward(module, 20, (1, 2), World(0, 2)).forward(SIDES[0]))
    assert not torch.equal(first, forward(module, 20, (1, 2), World(1, 2)).forward(SIDES[0]))


def test_chunks_and_sides_have_dropout_of_their_own():
    tokens = TokenStore.of_lists([[7, 8, 9]] * 4, Specials((1,), (2,), 0))
    sides = [TextBatch(side, tokens, np.arange(4), 8) for side in ("query", "document")]
    # Two texts a chunk.
    vectors = [vector for side in sides for vector in forward(towers(dropout=0.4), 10).forward(side)]
    assert all(not torch.equal(one, other) for i, one in enumerate(vectors) for other in vectors[:i])


def test_a_frozen_tower_gives_vectors_and_takes_no_gradients():
    module = towers(dropout=0.0, tied=False)
    whole = gradients(module, lambda: backward(PlainPass, forward(module, 20), SIDES, coupled_loss))
    expected = whole[: len(list(module.queries.parameters()))]
    module.freeze("document")
    for make_pass in (PlainPass, GradCache):
        given = make_pass, forward(module, 20), SIDES, coupled_loss
        found = gradients(module, lambda given=given: backward(*given))
        assert_close(found[: len(expected)], expected)
        assert found[len(expected) :] == [None] * len(expected)
