"""Leave out what reads like a known positive: the same text under another id is no negative."""

import hashlib
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from pyserini_ance.data.collection import Side, Texts
from pyserini_ance.encoders.tokenization import Tokenization
from pyserini_ance.negatives.guards import known_positive
from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.guards.guard import Guard
from pyserini_ance.negatives.table import PADDING


class Duplicates(Guard):
    """Texts as the encoder's template makes them, up to blanks and case."""

    kind: Literal["duplicates"] = "duplicates"
    costly: ClassVar[bool] = True

    def mark(self, candidates: Candidates) -> np.ndarray:
        direction, snapshot = candidates.direction, candidates.snapshot
        relation, side = direction.relation, direction.candidate
        texts = snapshot.collection.documents if side == "document" else direction.split.queries
        there = candidates.rows != PADDING
        wanted = np.unique(np.concatenate([candidates.rows[there], relation.rows]))
        numbers = _numbers(texts, wanted, snapshot.tokenization, side)
        # What has the text of a known positive is a known positive, once rows are those of distinct texts.
        distinct = replace(relation, rows=numbers[np.searchsorted(wanted, relation.rows)])
        rows = np.full(candidates.rows.shape, PADDING)
        rows[there] = numbers[np.searchsorted(wanted, candidates.rows[there])]
        return known_positive(distinct, direction.anchors, rows)


def _numbers(texts: Texts, rows: np.ndarray, tokenization: Tokenization, side: Side) -> np.ndarray:
    """(R,): rows with equal texts have equal numbers."""
    digests = np.fromiter((_digest(tokenization.text(side, texts[row])) for row in rows.tolist()), np.uint64, len(rows))
    return np.unique(digests, return_inverse=True)[1]


def _digest(text: str) -> int:
    plain = " ".join(text.split()).casefold()
    return int.from_bytes(hashlib.blake2b(plain.encode(), digest_size=8).digest(), "little")
