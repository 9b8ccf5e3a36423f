"""LambdaRank: RankNet with each pair weighted by what its two documents, swapped in the ranking, would change of a measure.

Source: Zhan et al. 2020 (LTRe), arXiv:2010.10469, Eq. 2, after Burges 2010; the paper does not name the measure.
"""

from typing import Literal

import torch
from pydantic import PositiveInt
from torch.nn.functional import pad, softplus

from pyserini_ance.trainer.losses.pairs import Pairs
from pyserini_ance.trainer.losses.scaled import Scaled


class LambdaRank(Scaled):
    """Mean over the pairs, those that change nothing among them. `cutoff`: what ranks below it counts nothing in the measure.

    `measure: RR` is 1 / rank of the first relevant document. `nDCG` has grades as gains, as trec_eval and ir-measures have by default
    (Jarvelin and Kekalainen 2002); what is below `data.relevance_threshold` gains nothing, as everywhere in training. `sum_RR` adds
    1 / rank of all relevant documents, so that a pair weighs |1/i - 1/j| whatever else is relevant: the code of LTRe's successor ADORE
    (jingtaozhan/DRhard, with cutoff 200). With one relevant document RR and sum_RR are the same.
    """

    kind: Literal["lambdarank"] = "lambdarank"
    measure: Literal["RR", "nDCG", "sum_RR"] = "RR"
    cutoff: PositiveInt | None = None

    @property
    def graded(self) -> bool:
        return self.measure == "nDCG"

    def __call__(self, scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        pairs = Pairs.of(labels, mask)
        changes = {"RR": self._rr, "nDCG": self._ndcg, "sum_RR": self._sum_rr}[self.measure]
        weights = changes(pairs, ranks_of(scores.detach(), labels, mask), labels, mask)
        return pairs.mean(weights * softplus(-pairs.differences(self.scaled(scores))))

    def _rr(self, pairs: Pairs, ranks: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(B, P, n): a swap brings the other document to the rank of the positive and the reverse; the first relevant one counts."""
        relevant = (labels > 0) & mask
        of_relevant = pad(ranks.masked_fill(~relevant, torch.inf), (0, 1), value=torch.inf)  # one more: there may be one column only
        first, second = of_relevant.topk(2, dim=1, largest=False).values[:, :, None, None].unbind(1)
        rest = torch.where(pairs.of_positives(ranks) == first, second, first)
        after = torch.minimum(rest, ranks[:, None, :])
        return (self._cut(1 / first, first) - self._cut(1 / after, after)).abs() * ~relevant[:, None, :]

    def _sum_rr(self, pairs: Pairs, ranks: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return pairs.differences(self._cut(1 / ranks, ranks)).abs() * (labels <= 0)[:, None, :]

    def _ndcg(self, pairs: Pairs, ranks: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        gains, discounts = (labels * mask).clamp(min=0), self._cut(1 / torch.log2(1 + ranks), ranks)
        # Ranks are a permutation: sorted, the best gain meets the largest discount.
        ideal = (gains.sort(dim=1, descending=True).values * discounts.sort(dim=1, descending=True).values).sum(1)
        return pairs.differences(gains) * pairs.differences(discounts).abs() / ideal[:, None, None]

    def _cut(self, values: torch.Tensor, ranks: torch.Tensor) -> torch.Tensor:
        return values if self.cutoff is None else values.masked_fill(ranks > self.cutoff, 0.0)


def ranks_of(scores: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B, n) float32 ranks from 1 by descending score, masked columns after all others.

    Of equal scores the less relevant ranks higher, so that neither chance nor the order of columns makes a positive good.
    """
    by_label = labels.argsort(dim=1, stable=True)
    by_score = scores.masked_fill(~mask, -torch.inf).gather(1, by_label).argsort(dim=1, descending=True, stable=True)
    return by_label.gather(1, by_score).argsort(dim=1) + 1.0
