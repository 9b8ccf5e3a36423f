import math

import pytest
import torch

from pyserini_ance.trainer.losses.pairwise import LambdaRank, RankNet, ranks_of


def rr(ranked: list[float], cutoff: int) -> float:
    return next((1 / rank for rank, label in enumerate(ranked[:cutoff], start=1) if label > 0), 0.0)


def ndcg(ranked: list[float], cutoff: int) -> float:
    def dcg(labels):
        return sum(label / math.log2(1 + rank) for rank, label in enumerate(labels[:cutoff], start=1))

    return dcg(ranked) / dcg(sorted(ranked, reverse=True))


MEASURES = {"RR": rr, "nDCG": ndcg}


def slow_lambdarank(measure: str, cutoff: int | None, scores, labels, mask) -> float:
    """Rank, and for each pair of which one is more relevant: swap, measure again."""
    lines = zip(scores, labels, mask, strict=True)
    ranking = sorted(((s, label) for s, label, there in lines if there), reverse=True)
    ranked, values = [label for _, label in ranking], []
    of = MEASURES[measure]
    for i, (s, of_s) in enumerate(ranking):
        for j, (t, of_t) in enumerate(ranking):
            if of_s > of_t:
                swapped = list(ranked)
                swapped[i], swapped[j] = swapped[j], swapped[i]
                change = abs(of(swapped, cutoff or len(ranked)) - of(ranked, cutoff or len(ranked)))
                values.append(change * math.log(1 + math.exp(t - s)))
    return sum(values) / max(1, len(values))


def random_case(grades: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(30, 9, generator=generator)
    drawn = torch.randint(1, grades + 1, (30, 9), generator=generator)
    labels = (drawn * (torch.rand(30, 9, generator=generator) < 0.35)).float()
    mask = torch.rand(30, 9, generator=generator) < 0.8
    labels[:, 0], mask[:, 0] = 1.0, True
    return scores, labels, mask


@pytest.mark.parametrize("cutoff", [None, 1, 3, 20])
@pytest.mark.parametrize(("measure", "grades"), [("RR", 1), ("RR", 3), ("nDCG", 1), ("nDCG", 3)])
def test_weights_are_what_a_swap_changes(measure, grades, cutoff):
    case = random_case(grades, seed=grades)
    rows = zip(*(part.tolist() for part in case), strict=True)
    expected = [slow_lambdarank(measure, cutoff, *row) for row in rows]
    found = LambdaRank(measure=f"{measure}@{cutoff}" if cutoff else measure)(*case)
    assert found.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-7) and max(expected) > 0.01


def test_weights_are_constants_to_the_gradient():
    """Each pair's gradient is RankNet's, times the weight."""
    scores = torch.tensor([[0.1, 0.5]], requires_grad=True)
    case = scores, torch.tensor([[1.0, 0.0]]), torch.ones(1, 2, dtype=torch.bool)
    losses = RankNet()(*case).sum(), LambdaRank()(*case).sum()
    of_ranknet, of_lambdarank = (torch.autograd.grad(loss, scores)[0] for loss in losses)
    torch.testing.assert_close(of_lambdarank, of_ranknet * (1 - 1 / 2))


def test_ranks():
    scores = torch.tensor([[0.3, 0.9, 0.3, 0.3, 5.0, 0.1]])
    labels = torch.tensor([[1.0, 0.0, 0.0, 2.0, 0.0, 0.0]])
    mask = torch.tensor([[True, True, True, True, False, True]])
    # Equal scores: the irrelevant one first.
    assert ranks_of(scores, labels, mask).tolist() == [[3, 1, 2, 4, 6, 5]]
