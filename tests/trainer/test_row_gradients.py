"""Row gradients against torch's own embedding: the same bits, step after step."""

import copy

import pytest
import torch
from torch import nn

from pyserini_ance.trainer.row_gradients import LEAST_ROWS, RowGradEmbedding, use_row_gradients

ROWS, DIMENSION = LEAST_ROWS, 12


class Model(nn.Module):
    """A word table with padding, a table that is too small, and a layer above both."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.words = nn.Embedding(ROWS, DIMENSION, padding_idx=0)
        self.places = nn.Embedding(16, DIMENSION)
        self.layer = nn.Linear(DIMENSION, 3)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(generator=generator)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layer(self.words(ids) + self.places(torch.arange(ids.shape[1])))


def batches(step: int) -> list[torch.Tensor]:
    """Two batches of a step, whose ids repeat within and between them; row 0 is padding."""
    generator = torch.Generator().manual_seed(step)
    return [torch.randint(0, 40 + 150 * step, (5, 9), generator=generator) for _ in range(2)]


@pytest.fixture
def models() -> tuple[Model, Model]:
    plain = Model()
    rows = copy.deepcopy(plain)
    use_row_gradients(rows)
    return plain, rows


def step(model: Model, optimizer: torch.optim.Optimizer, number: int) -> torch.Tensor:
    """One step with two backward passes and clipping; the gradient of the words after it."""
    for ids in batches(number):
        model(ids).square().sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert model.words.weight.grad is not None
    gradient = model.words.weight.grad.clone()
    optimizer.zero_grad(set_to_none=True)
    return gradient


def test_only_large_tables_become_row_embeddings(models):
    plain, rows = models
    assert type(rows.words) is RowGradEmbedding and type(rows.places) is nn.Embedding
    assert plain.state_dict().keys() == rows.state_dict().keys()


def test_gradients_and_weights_have_the_same_bits_after_each_of_many_steps(models):
    pairs = [(model, torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)) for model in models]
    for number in range(6):
        of_plain, of_rows = (step(model, optimizer, number) for model, optimizer in pairs)
        assert torch.equal(of_plain, of_rows)
        assert all(map(torch.equal, *(model.parameters() for model in models)))
    assert of_plain[0].eq(0).all() and of_plain.ne(0).any(dim=1).sum() > 50


def test_a_step_without_texts_has_no_gradient_and_the_next_starts_from_zero(models):
    plain, rows = models
    for model in models:
        model(torch.tensor([[1, 2]])).sum().backward()
        model.zero_grad(set_to_none=True)
        assert model.words.weight.grad is None
        model(torch.tensor([[2, 3]])).sum().backward()
    assert torch.equal(plain.words.weight.grad, rows.words.weight.grad)
    assert rows.words.weight.grad[1].eq(0).all()


def test_a_gradient_that_is_there_is_added_to(models):
    for model in models:
        model.words.weight.grad = torch.ones_like(model.words.weight)
        model(torch.tensor([[1, 2]])).sum().backward()
    plain, rows = (model.words.weight.grad for model in models)
    assert torch.equal(plain, rows) and rows[5].eq(1).all()


def test_a_frozen_table_has_no_gradient(models):
    _, rows = models
    rows.words.weight.requires_grad_(False)
    rows(torch.tensor([[1, 2]])).sum().backward()
    assert rows.words.weight.grad is None and rows.layer.weight.grad is not None
    with torch.no_grad():
        assert not rows(torch.tensor([[1, 2]])).requires_grad
