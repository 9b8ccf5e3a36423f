"""Proof of an export: from its folder, sentence-transformers computes the vectors of the checkpoint."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyserini_ance.data.collection import SIDES, Collection, Side, Texts
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.encoders.tokenization import fill_template, stripped

TEXTS = 32  # of each side
BOUND = 1e-4  # of a vector's length

Records = Mapping[Side, Sequence[Mapping[str, str]]]


class Difference(NamedTuple):
    """The largest difference between two vectors of a text, as a share of the vector's length."""

    share: float
    side: Side
    text: str

    def check(self, folder: Path) -> None:
        """Raise RuntimeError if the difference is beyond `BOUND`."""
        if not self.share <= BOUND:
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

    ours = load_encoder(trained)
    settings, prompts = ours.config.tokenization, ours.config.tokenization.prompts()
    texts: dict[Side, list[str]] = {}
    expected, normalized = {}, {}
    for side in SIDES:
        # It cuts normalized vectors last, and compares them by cosine.
        normalized[side] = bool(ours.config.truncate_dim) and ours.towers.tower(side).normalizes
        template = settings.side(side).template.removeprefix(prompts[side])
        # Python lower-cases a final sigma otherwise than tokenizers.
        kept = [one for one in records[side] if not (settings.lowercase and "Σ" in "".join(one.values()))]
        texts[side] = [fill_template(template, record) for record in kept]
        expected[side] = ours.encode(kept, side)
    del ours
    found = [Difference(0.0, "query", "")]
    try:
        theirs = SentenceTransformer(str(exported), device="cpu")
        encode = {"query": theirs.encode_query, "document": theirs.encode_document}
        for side in [side for side in SIDES if texts[side]]:
            given = encode[side](texts[side], show_progress_bar=False, normalize_embeddings=normalized[side])
            lengths = np.maximum(np.linalg.norm(expected[side], axis=1), 1e-9)
            shares = np.nan_to_num(np.linalg.norm(expected[side] - given, axis=1) / lengths, nan=1.0)
            worst = int(shares.argmax())
            found.append(Difference(float(shares[worst]), side, texts[side][worst]))
    except Exception as error:  # of whatever the folder makes the library do; results are written first
        found.append(Difference(1.0, side, f"{type(error).__name__}: {error}"))
    return max(found)
