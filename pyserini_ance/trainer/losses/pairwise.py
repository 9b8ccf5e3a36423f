"""Pairwise losses: a positive should score higher than each less relevant document."""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad, softplus

from pyserini_ance.trainer.losses.base import DistillationLoss, Loss, Scaled, Scaling, mean_of


class Pairwise:
    """A loss of `Pairs`.

    Its call also takes `max_positives`, the highest number of positives of an anchor under the mask: the host
    knows it from the batch's rows, and would otherwise wait for the device. None: it is counted.
    """


@dataclass(frozen=True)
class Pairs:
    """Pairs of a positive with a document of a lower label, for B anchors with n columns.

    positives: (B, P) columns, P the highest number of positives of an anchor.
    mask: (B, P, n) bool, the pairs that count.
    Source: Zhan et al. 2020, arXiv:2010.10469, Algorithm 1, line 7: all pairs with l_s > l_t.
    """

    positives: Tensor
    mask: Tensor

    @classmethod
    def of(cls, labels: Tensor, mask: Tensor, max_positives: int | None = None) -> "Pairs":
        positive = (labels > 0) & mask
        if max_positives is None:
            max_positives = int(positive.sum(1).max())
        # An anchor with fewer positives gets other columns, which the mask excludes.
        is_positive, columns = positive.float().topk(max_positives, dim=1)
        lesser = labels[:, None, :] < labels.gather(1, columns)[:, :, None]
        return cls(columns, (is_positive > 0)[:, :, None] & lesser & mask[:, None, :])

    def of_positives(self, values: Tensor) -> Tensor:
        """(B, P, 1): the positives' values, of `values` (B, n)."""
        return values.gather(1, self.positives)[:, :, None]

    def differences(self, values: Tensor) -> Tensor:
        """(B, P, n): the positive's value minus the other document's, of `values` (B, n)."""
        return self.of_positives(values) - values[:, None, :]

    def mean(self, values: Tensor) -> Tensor:
        """(B,): the mean over an anchor's pairs of `values` (B, P, n); 0 for an anchor without pairs."""
        return mean_of(values, self.mask)


class Hinge(Pairwise, Loss):
    """The mean over all pairs of max(0, `margin` - difference of the scores).

    Source: one of the losses of Xiong et al. 2021, arXiv:2007.00808, Eq. 2, who give no formula and no
    margin; "not much better" than NLL (section 6.3). RepBERT (Zhan et al. 2020, arXiv:2006.15498) trains so
    on in-batch negatives, with margin 1.
    """

    kind: Literal["hinge"] = "hinge"
    margin: float = Field(default=1.0, gt=0)
    """The margin between positive and negative, in units of the score; far below 1 for cosines."""

    def __call__(
        self, scores: Tensor, labels: Tensor, mask: Tensor, max_positives: int | None = None
    ) -> Tensor:
        pairs = Pairs.of(labels, mask, max_positives)
        return pairs.mean(torch.relu(self.margin - pairs.differences(scores)))


class RankNet(Pairwise, Scaled):
    """The mean logistic loss over all pairs, wherever the documents rank.

    Source: Zhan et al. 2020 (LTRe), arXiv:2010.10469, Eq. 1, after Burges 2010. The paper does not say sum or
    mean, the code of its successor ADORE (jingtaozhan/DRhard) takes the mean.
    """

    kind: Literal["ranknet"] = "ranknet"

    def __call__(
        self, scores: Tensor, labels: Tensor, mask: Tensor, max_positives: int | None = None
    ) -> Tensor:
        pairs = Pairs.of(labels, mask, max_positives)
        return pairs.mean(softplus(-self.scaled(pairs.differences(scores))))


class MarginMse(Pairwise, DistillationLoss, Scaling):
    """The mean squared difference of the margins, over all pairs of a positive and a negative.

    Source: Hofstätter et al. 2020, arXiv:2010.02666.
    `scale` brings the student's scores to the size of the teacher's: a cosine cannot reach a logit's margin.
    """

    kind: Literal["margin_mse"] = "margin_mse"

    def __call__(
        self, scores: Tensor, labels: Tensor, mask: Tensor, teacher: Tensor, max_positives: int | None = None
    ) -> Tensor:
        pairs = Pairs.of((labels > 0).float(), mask, max_positives)
        teacher = teacher.masked_fill(~mask, 0.0)
        margins = self.scaled(pairs.differences(scores))
        return pairs.mean((margins - pairs.differences(teacher)).square())


class LambdaRank(Pairwise, Scaled):
    """RankNet whose pairs are weighted by how much swapping the two documents changes a measure.

    The mean is over all pairs, including pairs that change nothing.
    Source: Zhan et al. 2020 (LTRe), arXiv:2010.10469, Eq. 2, after Burges 2010; the paper does not name the
    measure.

    `measure: RR` is 1 / rank of the first relevant document. `nDCG` takes grades as gains, the default of
    trec_eval and ir-measures (Jarvelin and Kekalainen 2002); documents below `data.relevance_threshold` gain
    nothing, as everywhere in training.
    """

    kind: Literal["lambdarank"] = "lambdarank"
    measure: str = Field(default="RR", pattern=r"^(RR|nDCG)(@[1-9]\d*)?$")
    """The measure whose change weighs a pair: `RR` or `nDCG`, or with a cutoff such as `RR@10`, below which
    ranks count nothing."""

    @property
    def graded(self) -> bool:  # type: ignore[override]  # depends on the measure
        return self.measure.startswith("nDCG")

    def __call__(
        self, scores: Tensor, labels: Tensor, mask: Tensor, max_positives: int | None = None
    ) -> Tensor:
        pairs = Pairs.of(labels, mask, max_positives)
        changes = self._ndcg if self.graded else self._rr
        weights = changes(pairs, ranks_of(scores.detach(), labels, mask), labels, mask)
        return pairs.mean(weights * softplus(-self.scaled(pairs.differences(scores))))

    def _rr(self, pairs: Pairs, ranks: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """(B, P, n): the change of 1 / rank of the first relevant document when a pair swaps its ranks."""
        relevant = (labels > 0) & mask
        # One column more, because topk needs two.
        relevant_ranks = pad(ranks.masked_fill(~relevant, torch.inf), (0, 1), value=torch.inf)
        first, second = relevant_ranks.topk(2, dim=1, largest=False).values[:, :, None, None].unbind(1)
        rest = torch.where(pairs.of_positives(ranks) == first, second, first)
        after = torch.minimum(rest, ranks[:, None, :])
        return (self._cut(1 / first, first) - self._cut(1 / after, after)).abs() * ~relevant[:, None, :]

    def _ndcg(self, pairs: Pairs, ranks: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        gains, discounts = (labels * mask).clamp(min=0), self._cut(1 / torch.log2(1 + ranks), ranks)
        # Ranks are a permutation: sorted, the best gain meets the largest discount.
        best = gains.sort(dim=1, descending=True).values
        ideal = (best * discounts.sort(dim=1, descending=True).values).sum(1)
        return pairs.differences(gains) * pairs.differences(discounts).abs() / ideal[:, None, None]

    def _cut(self, values: Tensor, ranks: Tensor) -> Tensor:
        _, _, cutoff = self.measure.partition("@")
        return values.masked_fill(ranks > int(cutoff), 0.0) if cutoff else values


def ranks_of(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """(B, n) float32 ranks from 1 by descending score, masked columns after all others.

    Among equal scores the less relevant document ranks higher, so that neither chance nor the order of
    columns favours a positive.
    """
    by_label = labels.argsort(dim=1, stable=True)
    masked = scores.masked_fill(~mask, -torch.inf).gather(1, by_label)
    by_score = masked.argsort(dim=1, descending=True, stable=True)
    return by_label.gather(1, by_score).argsort(dim=1) + 1.0
