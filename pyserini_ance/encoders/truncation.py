"""How many texts are longer than the encoder reads."""

from dataclasses import dataclass

import numpy as np

from pyserini_ance.data.token_store import Specials
from pyserini_ance.encoders.tokenization import DocumentTokenization, SideTokenization


@dataclass(frozen=True)
class Truncation:
    """Texts that are cut, as the tokens at their end are not encoded.

    limit: where they are cut. median_tokens: of the whole texts, special tokens included. `max_characters`
    cuts before texts become tokens, and is not counted.
    """

    texts: int
    cut: int
    limit: str
    median_tokens: int

    @classmethod
    def of(cls, lengths: np.ndarray, specials: Specials, settings: SideTokenization) -> "Truncation":
        """lengths: (N,) the tokens of N whole texts, at least one, without special tokens."""
        passages = settings.passages if isinstance(settings, DocumentTokenization) else 1
        enclosed = len(specials.before) + len(specials.after)
        per_passage = isinstance(settings, DocumentTokenization) and settings.special_tokens == "per_passage"
        capacity = settings.length_tokens * passages - enclosed * (passages if per_passage else 1)
        cut = int((lengths > capacity).sum())
        limit = f"{passages} passages of " * (passages > 1) + f"{settings.length_tokens}"
        return cls(len(lengths), cut, limit, int(np.median(lengths)) + enclosed)

    @property
    def share(self) -> str:
        """The share of the texts that are cut, in percent."""
        percent = f"{100 * self.cut / self.texts:.1f}"
        return "below 0.1 %" if self.cut and percent == "0.0" else f"{percent} %"

    def describe(self, noun: str) -> str:
        """A phrase, such as "12.5 % of the documents are cut at 64 tokens, median 38 tokens"."""
        return (
            f"{self.share} of the {noun} are cut at {self.limit} tokens, median {self.median_tokens} tokens"
        )
