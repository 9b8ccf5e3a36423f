"""What holds for every loss, shipped or new; tests/trainer/losses/test_values.py has the values."""

import pytest
import torch

from pyserini_ance.recipe.components import component_class, kinds
from pyserini_ance.trainer.losses.base import DistillationLoss, Scaling

KINDS = [kind for kind in kinds("loss") if kind != "embed_distill"]  # losses of scores
ANCHORS, COLUMNS = 24, 11


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def loss(kind: str):
    """The loss of a kind; one that needs a teacher gets scores that depend on labels and scores."""
    made = component_class("loss", kind).model_validate({"kind": kind})
    if not isinstance(made, DistillationLoss):
        return made
    return lambda scores, labels, mask: made(scores, labels, mask, 3 * labels + scores.detach().cos())


@pytest.fixture(scope="module")
def case() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One to several positives; the first has no negative, the third only what is masked beside a pair."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(ANCHORS, COLUMNS, generator=generator)
    labels = (torch.rand(ANCHORS, COLUMNS, generator=generator) < 0.3).float()
    mask = torch.rand(ANCHORS, COLUMNS, generator=generator) < 0.8
    labels[:, 0], mask[:, 0] = 1.0, True
    labels[0], mask[1], mask[2] = 1.0, True, False
    labels[2, 1:], mask[2, 0], mask[2, 5] = 0.0, True, True
    return scores, labels, mask


def gradients(loss, scores, labels, mask) -> torch.Tensor:
    scores = scores.clone().requires_grad_()
    loss(scores, labels, mask).sum().backward()
    return scores.grad


def test_masked_columns_do_not_matter_and_get_no_gradient(loss, case):
    scores, labels, mask = case
    others = torch.where(mask, scores, 50.0), torch.where(mask, labels, 1 - labels), mask
    torch.testing.assert_close(loss(*others), loss(*case))
    assert (gradients(loss, *case)[~mask] == 0).all() and (gradients(loss, *others)[~mask] == 0).all()


def test_the_order_of_columns_does_not_matter(loss, case):
    order = torch.randperm(COLUMNS, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(loss(*(part[:, order] for part in case)), loss(*case))
    shuffled = gradients(loss, *(part[:, order] for part in case))
    torch.testing.assert_close(shuffled, gradients(loss, *case)[:, order])


def test_documents_that_come_twice_may_stand_anywhere(loss):
    """Their scores are equal to the last bit."""
    scores, mask = torch.tensor([[0.5, 0.5, 0.5, 0.2, 0.2, 0.7]]), torch.ones(1, 6, dtype=torch.bool)
    labels = torch.tensor([[1.0, 0, 0, 1, 0, 0]])
    expected = loss(scores, labels, mask)
    for order in (torch.randperm(6, generator=torch.Generator().manual_seed(seed)) for seed in range(8)):
        torch.testing.assert_close(loss(scores[:, order], labels[:, order], mask[:, order]), expected)


@pytest.mark.parametrize("size", [0.0, 1e4, 1e15, 1e30])
def test_gradients_are_finite_however_large_scores_are(kind, loss, case, size):
    if size == 1e30 and issubclass(component_class("loss", kind), DistillationLoss):
        return  # a teacher's loss is finite as long as its square is
    scores, labels, mask = case
    assert torch.isfinite(loss(size * scores, labels, mask)).all()
    assert torch.isfinite(gradients(loss, size * scores, labels, mask)).all()


SETTINGS = {"lambdarank": [{}, {"measure": "nDCG"}], "kl": [{}, {"teacher_temperature": 3}]}
CASES = [
    {"kind": kind, **settings, **({} if scale is None else {"scale": scale})}
    for kind in KINDS
    for settings in SETTINGS.get(kind, [{}])
    for scale in ([None, 0.7] if issubclass(component_class("loss", kind), Scaling) else [None])
]


def value_and_gradient(settings: dict, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the same float32 scores around 700, as of RoBERTa's dot products, and a teacher's, so read."""
    generator = torch.Generator().manual_seed(0)
    scores, teacher = (700 + 40 * torch.rand(64, 9, generator=generator) - 20 for _ in range(2))
    labels = (torch.rand(64, 9, generator=generator) < 0.3).float()
    mask = torch.rand(64, 9, generator=generator) < 0.8
    labels[:, 0], mask[:, 0] = 1.0, True
    loss = component_class("loss", settings["kind"]).model_validate(settings)
    scores = scores.to(dtype).requires_grad_()
    more = [teacher.to(dtype)] if isinstance(loss, DistillationLoss) else []
    values = loss(scores, labels.to(dtype), mask, *more)
    values.sum().backward()
    return values.detach().double(), scores.grad.double()


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_large_scores_have_the_values_and_gradients_of_float64(settings):
    found, gradient = value_and_gradient(settings, torch.float32)
    expected, expected_gradient = value_and_gradient(settings, torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-12)
    # Kl's is the difference of two probabilities, which a float32 holds to some 6e-8.
    atol = torch.finfo(torch.float32).eps if settings["kind"] == "kl" else 1e-9
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-5, atol=atol)
