"""Losses of scores around 700, as dot products of RoBERTa vectors are: exact, values and gradients."""

import pytest
import torch

from pyserini_ance.recipe.components import component_class, kinds
from pyserini_ance.trainer.losses.base import DistillationLoss, Scaling

ANCHORS, COLUMNS = 64, 9
SETTINGS = {"lambdarank": [{}, {"measure": "nDCG"}], "kl": [{}, {"teacher_temperature": 3}]}
CASES = [
    {"kind": kind, **settings, **({} if scale is None else {"scale": scale})}
    for kind in kinds("loss")
    for settings in SETTINGS.get(kind, [{}])
    for scale in ([None, 0.7] if issubclass(component_class("loss", kind), Scaling) else [None])
]


def value_and_gradient(settings: dict, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the same float32 scores, read in that precision; those of a teacher are of the same size."""
    generator = torch.Generator().manual_seed(0)
    scores, teacher = (700 + 40 * torch.rand(ANCHORS, COLUMNS, generator=generator) - 20 for _ in range(2))
    labels = (torch.rand(ANCHORS, COLUMNS, generator=generator) < 0.3).float()
    mask = torch.rand(ANCHORS, COLUMNS, generator=generator) < 0.8
    labels[:, 0], mask[:, 0] = 1.0, True
    loss = component_class("loss", settings["kind"]).model_validate(settings)
    scores = scores.to(dtype).requires_grad_()
    more = [teacher.to(dtype)] if isinstance(loss, DistillationLoss) else []
    values = loss(scores, labels.to(dtype), mask, *more)
    values.sum().backward()
    return values.detach().double(), scores.grad.double()


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_values_and_gradients_are_those_of_float64(settings):
    found, gradient = value_and_gradient(settings, torch.float32)
    expected, expected_gradient = value_and_gradient(settings, torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-5, atol=1e-9)
