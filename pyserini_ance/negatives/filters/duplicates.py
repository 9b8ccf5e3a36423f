"""Remove candidates with the text of a known positive: the same text under another id is not a negative."""

import hashlib
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from pyserini_ance.data.known_positives import is_known_positive
from pyserini_ance.negatives.filters.base import Candidates, Filter
from pyserini_ance.negatives.table import PADDING


class Duplicates(Filter):
    """Compares texts as the encoder's template builds them, ignoring case and the amount of whitespace."""

    kind: Literal["duplicates"] = "duplicates"
    expensive: ClassVar[bool] = True

    def mask(self, candidates: Candidates) -> np.ndarray:
        anchor_set, snapshot = candidates.anchor_set, candidates.snapshot
        known_positives, side = anchor_set.by_text, anchor_set.candidate
        texts = snapshot.collection.documents if side == "document" else anchor_set.split.queries
        present = candidates.rows != PADDING
        rows = np.unique(np.concatenate([candidates.rows[present], known_positives.rows]))
        # (R,) int64: rows with equal texts have equal ids.
        built = (snapshot.tokenization.text(side, texts[row]) for row in rows.tolist())
        normalized = (" ".join(text.split()).casefold().encode() for text in built)
        digests = (hashlib.blake2b(text, digest_size=8).digest() for text in normalized)
        numbers = (int.from_bytes(digest, "little") for digest in digests)
        text_ids = np.unique(np.fromiter(numbers, np.uint64, len(rows)), return_inverse=True)[1]
        # With rows replaced by text ids, a candidate with the text of a known positive is a known positive.
        positives = replace(known_positives, rows=text_ids[np.searchsorted(rows, known_positives.rows)])
        candidate_ids = np.full(candidates.rows.shape, PADDING)
        candidate_ids[present] = text_ids[np.searchsorted(rows, candidates.rows[present])]
        anchors = anchor_set.first_of(anchor_set.anchor, anchor_set.anchors)
        return is_known_positive(positives, anchors, candidate_ids)
