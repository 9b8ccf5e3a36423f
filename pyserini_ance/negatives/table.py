"""NegativeTable: for each anchor its candidates in rank order, and where they came from."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyserini_ance.encoders.tokenization import Side

PADDING = -1


@dataclass(frozen=True)
class NegativeTable:
    """anchors (A,) int32 rows; candidates (A, n) int32 rows in rank order, then PADDING; scores (A, n) float32.

    A query's candidates never hold one of its known positives.
    """

    anchor_side: Side
    candidate_side: Side
    anchors: np.ndarray
    candidates: np.ndarray
    scores: np.ndarray
    source: str

    @property
    def counts(self) -> np.ndarray:
        """(A,) candidates of each anchor."""
        return (self.candidates != PADDING).sum(1)

    def draw(self, positions: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        """(B, n) candidates of the anchors at `positions` (B,), uniform without replacement; PADDING where there are fewer."""
        choices = self.candidates[positions]
        keys = np.where(choices != PADDING, rng.random(choices.shape), np.inf)
        columns = np.argsort(keys, axis=1)[:, :n]
        drawn = np.take_along_axis(choices, columns, 1)
        return np.pad(drawn, ((0, 0), (0, n - drawn.shape[1])), constant_values=PADDING)

    def save(self, path: Path) -> None:
        from safetensors.numpy import save_file

        about = {"anchor_side": self.anchor_side, "candidate_side": self.candidate_side, "source": self.source}
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in ("anchors", "candidates", "scores")}
        # One key, because safetensors writes several in random order: equal tables are equal bytes, with equal hashes.
        save_file(arrays, path, {"about": json.dumps(about)})

    @classmethod
    def load(cls, path: Path) -> "NegativeTable":
        from safetensors import safe_open

        with safe_open(path, "numpy") as file:
            about = json.loads(file.metadata()["about"])
            return cls(**about, **{name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118


def turnover(new: NegativeTable, old: NegativeTable) -> float:
    """The share of `new`'s candidates that are not among the same anchor's in `old`. Both are over the same anchors."""
    width = int(max(new.candidates.max(initial=0), old.candidates.max(initial=0))) + 1
    keys = [t.anchors[:, None].astype(np.int64) * width + t.candidates for t in (new, old)]
    fresh = ~np.isin(keys[0], keys[1][old.candidates != PADDING])
    there = new.candidates != PADDING
    return float(fresh[there].mean()) if there.any() else 0.0
