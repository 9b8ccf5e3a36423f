"""Proof of an export: from its folder, sentence-transformers computes the vectors of the checkpoint."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyserini_ance.data.collection import SIDES, Collection, Side, Texts
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.encoders.tokenization import fill_template, stripped

TEXTS = 32  # of each side
BOUND = 1e-4  # of a vector's length
PROMPT = re.compile(r"^[^{}]*")

Records = Mapping[Side, Sequence[Mapping[str, str]]]


class Difference(NamedTuple):
    """The largest difference between two vectors of a text, as a share of the vector's length."""

    share: float
    side: Side
    text: str

    def check(self, folder: Path) -> None:
        """Raise RuntimeError if the difference is beyond `BOUND`."""
        if self.share > BOUND:
            raise RuntimeError(
                f"the export is wrong: {folder}, loaded by sentence-transformers, gives the {self.side} "
                f"{self.text[:60]!r} a vector that differs from the checkpoint's by {self.share:.1e} of its "
                f"length; expected at most {BOUND:.0e}. Measures and rankings are the checkpoint's: use the "
                "class `pyserini_ance`, and do not publish the folder"
            )


def some_records(collection: Collection, split: str) -> Records:
    """Up to `TEXTS` queries and documents, from all of the collection."""

    def some(texts: Texts) -> list[dict[str, str]]:
        rows = np.unique(np.linspace(0, len(texts) - 1, TEXTS).astype(int))
        return [stripped(texts[int(row)]) for row in rows]

    return {"query": some(collection.split(split).queries), "document": some(collection.documents)}


def largest_difference(trained: Path, exported: Path, records: Records) -> Difference:
    """Encode `records` by the encoder in `trained`, and by sentence-transformers from `exported`."""
    from sentence_transformers import SentenceTransformer

    ours, theirs = load_encoder(trained), SentenceTransformer(str(exported), device="cpu")
    found = []
    for side in SIDES:
        encode = theirs.encode_query if side == "query" else theirs.encode_document
        template = PROMPT.sub("", ours.config.tokenization.side(side).template)
        texts = [fill_template(template, record) for record in records[side]]
        expected = ours.encode(records[side], side)
        off = np.linalg.norm(expected - encode(texts, show_progress_bar=False), axis=1)
        shares = off / np.maximum(np.linalg.norm(expected, axis=1), 1e-9)
        worst = int(shares.argmax())
        found.append(Difference(float(shares[worst]), side, texts[worst]))
    return max(found)
