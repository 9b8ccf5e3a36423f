import math

import pytest
import torch

from pyserini_ance.recipe.components import component_class, kinds
from pyserini_ance.trainer.losses.base import Scaled
from pyserini_ance.trainer.losses.nll import Nll

CLASSES = [component_class("loss", kind) for kind in kinds("loss")]
SCORES, LABELS, MASK = (
    torch.tensor([[0.3, 0.1]]),
    torch.tensor([[1.0, 0.0]]),
    torch.ones(1, 2, dtype=torch.bool),
)


@pytest.mark.parametrize("loss", [cls for cls in CLASSES if issubclass(cls, Scaled)])
def test_scale_is_the_inverse_of_temperature(loss):
    expected = pytest.approx(loss()(20 * SCORES, LABELS, MASK).item(), rel=1e-5)
    assert loss(scale=20)(SCORES, LABELS, MASK).item() == expected
    assert loss(temperature=0.05)(SCORES, LABELS, MASK).item() == expected


def test_scores_are_multiplied_by_the_scale():
    assert Nll(scale=20)(SCORES, LABELS, MASK).item() == pytest.approx(
        math.log(1 + math.exp(-0.2 * 20)), rel=1e-5
    )


def test_scale_and_temperature_exclude_each_other():
    with pytest.raises(ValueError, match="not both"):
        Nll(scale=20, temperature=0.05)
