"""Sources that search the other side with the model's own vectors, and the rule behind `top_k: auto`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PositiveInt

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.source import MinedSource

AUTO = "auto"
LEAST, MOST = 20, 200
PAPERS_CANDIDATES = 8_800_000  # passages of MS MARCO, from whose top 200 the papers sample


def auto_top_k(candidates: int) -> int:
    """The `top_k` of `auto` for a search over N candidates: 200 (N / 8.8 million)^(1/3), from 20 to 200.

    The papers sample from the top 200 of 8.8 million passages (Xiong et al. 2021). In a small collection most
    of the top 200 are easy: on MedQuAD (15,809 documents) a model that samples from 20 is better than one
    that samples from 200, and smaller sets did best with ranks up to 20 or 50. The cube root joins both: a
    tenth of the papers' depth at a thousandth of their collection, 24 for MedQuAD, 97 for a million.
    """
    return min(MOST, max(LEAST, round(MOST * (candidates / PAPERS_CANDIDATES) ** (1 / 3))))


def _read_top_k(value: Any) -> Any:
    """Report one error at the key instead of one per union member."""
    if value != AUTO and (not isinstance(value, int) or value < 1):
        raise ValueError("expected `auto` or a number from 1")
    return value


TopK = Annotated[PositiveInt | Literal["auto"], BeforeValidator(_read_top_k)]


class SearchedSource(MinedSource):
    """A source that retrieves the `top_k` nearest candidates of each anchor, by the model in training."""

    top_k: TopK = 200
    """The number of candidates per anchor, after known positives and filtered candidates are removed; `auto`
    follows the number of candidates that are searched, from 20 to 200."""

    def top_k_of(self, anchor_set: AnchorSet) -> int:
        """`top_k` as a number."""
        return self.top_k if isinstance(self.top_k, int) else auto_top_k(anchor_set.candidates)

    def max_candidates(self, previous_stage: int) -> int:
        return self.top_k if isinstance(self.top_k, int) else MOST


def resolved_top_k(sources: tuple[Any, ...], anchor_set: AnchorSet) -> int | None:
    """The number behind `top_k: auto` in any of the sources over one anchor set; None if none has it."""
    automatic = (one for one in sources if isinstance(one, SearchedSource) and one.top_k == AUTO)
    return next((one.top_k_of(anchor_set) for one in automatic), None)
