from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from pyserini_ance.data.token_store import Specials, TokenStore
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.two_tower import TwoTower
from pyserini_ance.trainer.forward import Forward, SideInput, cached_backward
from pyserini_ance.trainer.randomness import dropout_of

TEXTS = [list(range(5, 5 + length)) for length in (3, 9, 1, 6, 9, 2, 4, 7)]
TOKENS = TokenStore.of_lists(TEXTS, Specials((1,), (2,), 0))


class Tower(nn.Module):
    def __init__(self, dropout: float):
        super().__init__()
        self.embeddings, self.linear, self.dropout = nn.Embedding(30, 6), nn.Linear(6, 5), nn.Dropout(dropout)

    def forward(self, ids, mask):
        hidden = torch.tanh(self.linear(self.dropout(self.embeddings(ids)))) * mask[..., None]
        return hidden.sum(1) / mask.sum(1, keepdim=True)


def forward(towers: TwoTower, tokens_per_batch: int, key: tuple = (1, 2)) -> Forward:
    return Forward(towers, nullcontext, tokens_per_batch, torch.device("cpu"), key, World())


def towers(dropout: float, tied: bool = True) -> TwoTower:
    torch.manual_seed(0)
    return TwoTower(Tower(dropout), None if tied else Tower(dropout))


def gradients(module: nn.Module, backward) -> list[torch.Tensor]:
    module.zero_grad()
    backward()
    return [p.grad.clone() for p in module.parameters()]


SIDES = [SideInput("query", TOKENS, np.array([4, 0, 2]), 8), SideInput("document", TOKENS, np.array([7, 1, 0, 3, 5, 6]), 10)]


def coupled_loss(queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(queries @ documents.T, torch.tensor([1, 0, 3])) + queries.pow(3).sum()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("tokens_per_batch", "chunks"), [(1000, 1), (20, 3), (1, 6)])
def test_cached_gradients_are_those_of_plain_backward_with_dropout(tokens_per_batch, chunks, tied):
    module = towers(dropout=0.4, tied=tied)
    run = forward(module, tokens_per_batch)
    assert len(run._chunks(SIDES[1])) == chunks
    plain = gradients(module, lambda: coupled_loss(*map(run.vectors, SIDES)).backward())
    cached = gradients(module, lambda: cached_backward(run, SIDES, coupled_loss))
    for one, other in zip(plain, cached, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_chunks_of_texts_change_nothing_without_dropout():
    module = towers(dropout=0.0)
    one, several = (gradients(module, lambda b=b: cached_backward(forward(module, b), SIDES, coupled_loss)) for b in (1000, 20))
    for first, second in zip(one, several, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)


def test_vectors_come_in_the_order_of_the_rows():
    module = towers(dropout=0.0)
    for side in SIDES:
        found = forward(module, 20).vectors(side)
        for row, vector in zip(side.rows, found, strict=True):
            ids, mask = TOKENS.batch(np.array([row]), side.length_tokens)
            torch.testing.assert_close(vector, module(side.side, torch.from_numpy(ids), torch.from_numpy(mask))[0], rtol=1e-5, atol=1e-6)


def test_dropout_depends_on_the_key_alone():
    module = towers(dropout=0.4)
    first = forward(module, 20, (1, 2)).vectors(SIDES[0])
    torch.rand(7)
    assert torch.equal(first, forward(module, 20, (1, 2)).vectors(SIDES[0]))
    assert not torch.equal(first, forward(module, 20, (1, 3)).vectors(SIDES[0]))


def test_chunks_and_sides_have_dropout_of_their_own():
    tokens = TokenStore.of_lists([[7, 8, 9]] * 4, Specials((1,), (2,), 0))
    sides = [SideInput(side, tokens, np.arange(4), 8) for side in ("query", "document")]
    vectors = [vector for side in sides for vector in forward(towers(dropout=0.4), 10).vectors(side)]  # two texts a chunk
    assert all(not torch.equal(one, other) for i, one in enumerate(vectors) for other in vectors[:i])


def test_dropout_of_puts_the_generator_back():
    before = torch.get_rng_state()
    with dropout_of(1, "query"):
        drawn = torch.rand(5)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(KeyError), dropout_of(1, "query"):
        assert torch.equal(torch.rand(5), drawn)
        raise KeyError
    assert torch.equal(torch.get_rng_state(), before)
    with dropout_of(1, "document"):
        assert not torch.equal(torch.rand(5), drawn)
