"""NegativeTable: for each anchor its candidates in rank order, and where they came from."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from pyserini_ance.data.best import PADDING
from pyserini_ance.data.collection import Side
from pyserini_ance.storage.files import write_json

ABOUT = "table.json"
ARRAYS = {"anchors": np.int32, "candidates": np.int32, "scores": np.float32, "origin": np.uint8}


@dataclass(frozen=True)
class Origin:
    """Where a candidate was first found: by which kind of source, for which generation (`<stage>-<step>`)."""

    source: str
    generation: str

    def __str__(self) -> str:
        return f"{self.source} of {self.generation}"


@dataclass(frozen=True)
class NegativeTable:
    """anchors (A,) int32 rows, ascending; candidates (A, n) int32 rows in rank order, then PADDING; scores (A, n) float32.

    An anchor's candidates never hold one of its known positives; one that stands there twice is drawn twice as often.
    Scores are those by which `source` found the candidates. `dropped` says how many candidates each filter took out.
    origin (A, n) uint8 points into `origins`, 0 at PADDING; None: all candidates are `source`'s, found for this generation.
    """

    anchor_side: Side
    candidate_side: Side
    anchors: np.ndarray
    candidates: np.ndarray
    scores: np.ndarray
    source: str
    dropped: dict[str, int] = field(default_factory=dict)
    origins: tuple[Origin, ...] = ()
    origin: np.ndarray | None = None

    @property
    def counts(self) -> np.ndarray:
        """(A,) candidates of each anchor."""
        return (self.candidates != PADDING).sum(1)

    def draw(self, rows: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        """(B, n) candidates of the anchors `rows` (B,), uniform without replacement; PADDING where there are fewer."""
        choices = self.candidates[self.positions(rows)]
        keys = np.where(choices != PADDING, rng.random(choices.shape), np.inf)
        columns = np.argsort(keys, axis=1)[:, :n]
        return _padded(np.take_along_axis(choices, columns, 1), n)

    def first(self, rows: np.ndarray, n: int) -> np.ndarray:
        """(B, n) candidates of the anchors `rows` (B,), the first in rank order; PADDING where there are fewer."""
        return _padded(self.candidates[self.positions(rows), :n], n)

    def positions(self, rows: np.ndarray) -> np.ndarray:
        """Where the anchors `rows` stand in the table."""
        positions = np.minimum(np.searchsorted(self.anchors, rows), len(self.anchors) - 1)
        assert (self.anchors[positions] == rows).all(), f"the table of {self.source} lacks anchors"
        return positions

    def of_generation(self, name: str) -> "NegativeTable":
        """The same table, with its candidates' origins spelt out; `name` is the generation that it was mined for."""
        if self.origin is not None:
            return self
        return replace(self, origins=(Origin(self.source, name),), origin=np.zeros(self.candidates.shape, np.uint8))

    def origin_counts(self) -> dict[str, int]:
        """Candidates of each origin; empty when all are the table's own."""
        if self.origin is None:
            return {}
        counts = np.bincount(self.origin[self.candidates != PADDING], minlength=len(self.origins))
        return {str(origin): int(count) for origin, count in zip(self.origins, counts, strict=True)}

    def save(self, folder: Path) -> None:
        """Write a folder, one file an array: equal tables are equal bytes, with equal hashes."""
        folder.mkdir(parents=True)
        there = {name: kind for name, kind in ARRAYS.items() if getattr(self, name) is not None}
        arrays = {name: np.ascontiguousarray(getattr(self, name), kind) for name, kind in there.items()}
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
        sides = {"anchor_side": self.anchor_side, "candidate_side": self.candidate_side}
        about = {**sides, "source": self.source, "dropped": dict(sorted(self.dropped.items()))}
        about |= {"origins": [asdict(origin) for origin in self.origins]} if self.origins else {}
        write_json(folder / ABOUT, {**about, "shapes": {name: array.shape for name, array in arrays.items()}})

    @classmethod
    def load(cls, folder: Path) -> "NegativeTable":
        """Memory-mapped: processes share its pages. Raises RuntimeError naming the file that is not as `table.json` says."""
        about = _read_about(folder / ABOUT)
        arrays = {name: _open_array(folder / f"{name}.npy", shape) for name, shape in about.pop("shapes").items()}
        origins = tuple(Origin(**origin) for origin in about.pop("origins", ()))
        return cls(**about, **arrays, origins=origins)


def _read_about(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RuntimeError(f"{path} is damaged ({error}); mine the table again") from error


def _open_array(path: Path, shape: list[int]) -> np.ndarray:
    expected = f"{np.dtype(ARRAYS[path.stem])} {tuple(shape)}"
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        found = f"{array.dtype} {array.shape}"
    except (OSError, ValueError, EOFError) as error:
        found = str(error)
    if found != expected:
        raise RuntimeError(f"{path} is not as {ABOUT} says: expected {expected}, found {found}; mine the table again")
    return array


def _padded(drawn: np.ndarray, n: int) -> np.ndarray:
    return np.pad(drawn, ((0, 0), (0, n - drawn.shape[1])), constant_values=PADDING)


def turnover(new: NegativeTable, old: NegativeTable) -> float:
    """The share of `new`'s candidates that are not among the same anchor's in `old`. Both are over the same anchors."""
    width = int(max(new.candidates.max(initial=0), old.candidates.max(initial=0))) + 1
    keys = [t.anchors[:, None].astype(np.int64) * width + t.candidates for t in (new, old)]
    fresh = ~np.isin(keys[0], keys[1][old.candidates != PADDING])
    there = new.candidates != PADDING
    return float(fresh[there].mean()) if there.any() else 0.0
