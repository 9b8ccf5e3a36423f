"""LambdaRank: RankNet whose pairs are weighted by how much swapping the two documents changes a measure.

Source: Zhan et al. 2020 (LTRe), arXiv:2010.10469, Eq. 2, after Burges 2010; the paper does not name the
measure.
"""

from typing import Literal

import torch
from pydantic import PositiveInt
from torch.nn.functional import pad, softplus

from pyserini_ance.trainer.losses.base import Pairs, Pairwise, Scaled


class LambdaRank(Pairwise, Scaled):
    """The mean over all pairs, including pairs that change nothing.

    `measure: RR` is 1 / rank of the first relevant document. `nDCG` takes grades as gains, the default of
    trec_eval and ir-measures (Jarvelin and Kekalainen 2002); documents below `data.relevance_threshold` gain
    nothing, as everywhere in training. `adore_rr` adds 1 / rank of all relevant documents, so that a pair
    weighs |1/i - 1/j| whatever else is relevant: the code of LTRe's successor ADORE (jingtaozhan/DRhard, with
    cutoff 200). With one relevant document RR and adore_rr are the same.
    """

    kind: Literal["lambdarank"] = "lambdarank"
    measure: Literal["RR", "nDCG", "adore_rr"] = "RR"
    """The measure whose change weighs a pair."""
    cutoff: PositiveInt | None = None
    """Ranks below it count nothing in the measure; null: all ranks count."""

    @property
    def graded(self) -> bool:  # type: ignore[override]  # depends on the measure
        return self.measure == "nDCG"

    def __call__(
        self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, max_positives: int | None = None
    ) -> torch.Tensor:
        pairs = Pairs.of(labels, mask, max_positives)
        changes = {"RR": self._rr, "nDCG": self._ndcg, "adore_rr": self._sum_rr}[self.measure]
        weights = changes(pairs, ranks_of(scores.detach(), labels, mask), labels, mask)
        return pairs.mean(weights * softplus(-self.scaled(pairs.differences(scores))))

    def _rr(
        self, pairs: Pairs, ranks: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """(B, P, n): the change of 1 / rank of the first relevant document when a pair swaps its ranks."""
        relevant = (labels > 0) & mask
        # One column more, because topk needs two.
        relevant_ranks = pad(ranks.masked_fill(~relevant, torch.inf), (0, 1), value=torch.inf)
        first, second = relevant_ranks.topk(2, dim=1, largest=False).values[:, :, None, None].unbind(1)
        rest = torch.where(pairs.of_positives(ranks) == first, second, first)
        after = torch.minimum(rest, ranks[:, None, :])
        return (self._cut(1 / first, first) - self._cut(1 / after, after)).abs() * ~relevant[:, None, :]

    def _sum_rr(
        self, pairs: Pairs, ranks: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        return pairs.differences(self._cut(1 / ranks, ranks)).abs() * (labels <= 0)[:, None, :]

    def _ndcg(
        self, pairs: Pairs, ranks: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        gains, discounts = (labels * mask).clamp(min=0), self._cut(1 / torch.log2(1 + ranks), ranks)
        # Ranks are a permutation: sorted, the best gain meets the largest discount.
        ideal = (
            gains.sort(dim=1, descending=True).values * discounts.sort(dim=1, descending=True).values
        ).sum(1)
        return pairs.differences(gains) * pairs.differences(discounts).abs() / ideal[:, None, None]

    def _cut(self, values: torch.Tensor, ranks: torch.Tensor) -> torch.Tensor:
        return values if self.cutoff is None else values.masked_fill(ranks > self.cutoff, 0.0)


def ranks_of(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B, n) float32 ranks from 1 by descending score, masked columns after all others.

    Among equal scores the less relevant document ranks higher, so that neither chance nor the order of
    columns favours a positive.
    """
    by_label = labels.argsort(dim=1, stable=True)
    by_score = (
        scores.masked_fill(~mask, -torch.inf).gather(1, by_label).argsort(dim=1, descending=True, stable=True)
    )
    return by_label.gather(1, by_score).argsort(dim=1) + 1.0
