import math

import pytest
import torch
from torch.nn.functional import kl_div

from pyserini_ance.recipe.components import component_class, kinds
from pyserini_ance.trainer.losses.base import Scaled
from pyserini_ance.trainer.losses.bce import Bce, SoftBce
from pyserini_ance.trainer.losses.kl import Kl
from pyserini_ance.trainer.losses.nll import LsePair, Nll
from pyserini_ance.trainer.losses.pairwise import Hinge, MarginMse, RankNet

CLASSES = [component_class("loss", kind) for kind in kinds("loss")]


def loss_of(loss, scores, labels, mask) -> list[float]:
    parts = torch.tensor([scores]).float(), torch.tensor([labels]).float(), torch.tensor([mask]).bool()
    return loss(*parts).tolist()


# No negative at all, and scores that overflow an exponential; the slow loops have all other values.
@pytest.mark.parametrize(
    ("loss", "scores", "labels", "mask", "expected"),
    [
        (Nll(), [5, 7], [1, 0], [1, 0], 0.0),
        (Nll(), [1000, -1000], [1, 0], [1, 1], 0.0),
        (Nll(), [-1000, 1000], [1, 0], [1, 1], 2000.0),
        (LsePair(), [5, 7], [1, 0], [1, 0], 0.0),
        (LsePair(), [-1000, 1000], [1, 0], [1, 1], 2000.0),
        (Bce(), [-1000, 1000], [1, 0], [1, 1], 1000.0),
        (Bce(), [1000, -1000], [1, 0], [1, 1], 0.0),
        (Hinge(margin=0.5), [5, 7], [1, 0], [1, 0], 0.0),
        (Hinge(margin=0.5), [-1000, 1000], [1, 0], [1, 1], 2000.5),
        (RankNet(), [5, 7], [1, 0], [1, 0], 0.0),
        (RankNet(), [-1000, 1000], [1, 0], [1, 1], 2000.0),
    ],
)
def test_exact_values(loss, scores, labels, mask, expected):
    assert loss_of(loss, scores, labels, mask) == pytest.approx([expected], abs=1e-6)


def slow_lse_pair(rows: list[tuple]) -> float:
    pairs = [math.exp(o - s) for s, label, _ in rows for o, other, _ in rows if label and not other]
    return math.log(1 + sum(pairs))


def slow_soft_bce(rows: list[tuple]) -> float:
    chances = [(1 / (1 + math.exp(-2 * s - 0.5)), 1 / (1 + math.exp(-t))) for s, _, t in rows]
    return -sum(t * math.log(p) + (1 - t) * math.log(1 - p) for p, t in chances) / len(chances)


# Of one anchor: (score, label, teacher's score) of the documents under the mask.
def slow_nll(rows: list[tuple]) -> float:
    negatives = sum(math.exp(s) for s, label, _ in rows if not label)
    each = [-math.log(math.exp(s) / (math.exp(s) + negatives)) for s, label, _ in rows if label]
    return sum(each) / len(each)


def slow_bce(rows: list[tuple]) -> float:
    """-log of the probability of the right answer, averaged over positives and over negatives."""
    positives = [-math.log(1 / (1 + math.exp(-s))) for s, label, _ in rows if label]
    negatives = [-math.log(1 / (1 + math.exp(s))) for s, label, _ in rows if not label]
    return sum(positives) / len(positives) / 2 + sum(negatives) / max(1, len(negatives)) / 2


def slow_kl(rows: list[tuple]) -> float:
    student = (torch.tensor([s for s, _, _ in rows]) / 0.5).log_softmax(0)
    target = (torch.tensor([t for _, _, t in rows]) / 2.0).log_softmax(0)
    return float(kl_div(student, target, log_target=True, reduction="sum")) if len(rows) > 1 else 0.0


def mean_of_pairs(of_pair):
    """The mean of `of_pair(difference of scores, of teacher's scores)` over pairs of different labels."""

    def slow(rows: list[tuple]) -> float:
        values = [of_pair(s - o, t - u) for s, of_s, t in rows for o, of_o, u in rows if of_s > of_o]
        return sum(values) / max(1, len(values))

    return slow


SLOW = [
    (Nll(), 1, slow_nll),
    (Bce(), 1, slow_bce),
    (LsePair(), 1, slow_lse_pair),
    (SoftBce(scale=2.0, bias=0.5), 1, slow_soft_bce),
    (Hinge(margin=0.5), 2, mean_of_pairs(lambda difference, _: max(0.0, 0.5 - difference))),
    (RankNet(), 2, mean_of_pairs(lambda difference, _: math.log(1 + math.exp(-difference)))),
    (Kl(scale=2.0, teacher_temperature=2.0), 1, slow_kl),
    (MarginMse(scale=2.0), 1, mean_of_pairs(lambda difference, teacher: (2 * difference - teacher) ** 2)),
]


def test_every_loss_has_a_slow_loop():
    of_their_own = {"lambdarank", "embed_distill"}  # test_lambdarank.py, test_embed_distill.py
    assert {loss.kind for loss, *_ in SLOW} | of_their_own == set(kinds("loss"))


@pytest.mark.parametrize(("loss", "grades", "slow"), SLOW, ids=[loss.kind for loss, *_ in SLOW])
def test_values_agree_with_a_slow_loop_and_gradients_are_finite(loss, grades, slow):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(20, 9, generator=generator).requires_grad_()
    labels = torch.randint(1 - 2 * grades, grades + 1, (20, 9), generator=generator).clamp(min=0).float()
    mask = torch.rand(20, 9, generator=generator) < 0.8
    labels[:, 0], mask[:, 0] = 1.0, True
    teacher = (3 * torch.randn(20, 9, generator=generator)).masked_fill(~mask, torch.nan)
    found = loss(scores, labels, mask, *([teacher] if loss.needs_teacher else []))
    parts = (part.tolist() for part in (scores, labels, teacher, mask))
    lines = [[*zip(*line, strict=True)] for line in zip(*parts, strict=True)]
    expected = [slow([(s, label, t) for s, label, t, there in line if there]) for line in lines]
    assert found.tolist() == pytest.approx(expected, rel=1e-5)
    found.sum().backward()
    assert torch.isfinite(scores.grad).all() and (scores.grad[~mask] == 0).all()


@pytest.mark.parametrize("loss", [cls for cls in CLASSES if issubclass(cls, Scaled)])
def test_scores_are_multiplied_by_scale(loss):
    expected = pytest.approx(loss_of(loss(), [6, 2], [1, 0], [1, 1]), rel=1e-5)
    assert loss_of(loss(scale=20), [0.3, 0.1], [1, 0], [1, 1]) == expected
