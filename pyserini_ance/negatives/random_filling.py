"""Random candidates in place of missing negatives."""

from typing import TYPE_CHECKING

import numpy as np

from pyserini_ance.data.known_positives import PADDING, PLURALS, repeats
from pyserini_ance.recipe.components import SettingError

if TYPE_CHECKING:
    from pyserini_ance.data.prepared import AnchorSet


def fill_random(
    drawn: np.ndarray, rows: np.ndarray, anchor_set: "AnchorSet", rng: np.random.Generator
) -> np.ndarray:
    """`drawn` (B, n) with each PADDING replaced by a random candidate of the anchor in `rows` (B,).

    Random candidates are uniform, differ from all others in their line, and are never positives.
    Entries that were drawn stay, repeats included, because repeats carry weight. Raises ValueError if an
    anchor has too few candidates.
    """
    empty = bad = drawn == PADDING
    if bad.any():
        check_enough_candidates(drawn.shape[1], anchor_set)
    drawn = drawn.astype(np.int64)
    while bad.any():
        drawn[bad] = rng.integers(0, anchor_set.candidates, int(bad.sum()))
        bad = empty & (anchor_set.never_negative(rows, drawn) | repeats(drawn))
    return drawn.astype(np.int32)


def check_enough_candidates(n: int, anchor_set: "AnchorSet") -> None:
    """Raises ValueError if an anchor has fewer than `n` candidates that may be its negatives."""
    (row, most), total = anchor_set.most_excluded, anchor_set.candidates
    if total - most >= n:
        return
    if anchor_set.anchor == "query":
        anchor = f"query {anchor_set.split.queries.ids[row]}"
    else:
        anchor = f"the document of row {row}"
    plural = PLURALS[anchor_set.candidate]
    raise SettingError(
        f"num_negatives={n} negatives, but {anchor} has only {total - most}: {most} of the {total} {plural} "
        "are its positives or have their text. Lower num_negatives."
    )
