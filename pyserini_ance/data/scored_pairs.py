"""Scores of pairs of a query and a document: a teacher's, by the model or from a file of another tool.

| file | scores |
|---|---|
| TREC run | the score column |
| training file of Tevatron or DPR | `score` of each listed passage |
| training file of FlagEmbedding | `pos_scores` and `neg_scores`, parallel to `pos` and `neg` |
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.data.formats.training_files import layout_of, listed_hits
from pyserini_ance.data.known_positives import PADDING
from pyserini_ance.data.rankings import hit_blocks, is_listed, line_of
from pyserini_ance.data.trec import read_hits
from pyserini_ance.storage.files import save_array


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """The scores of P pairs of an anchor and a candidate.

    keys: (P,) int64, ascending: the anchor's row times `width`, plus the candidate's row. width: number of
        candidates on the other side. scores: (P,) float32.
    """

    keys: np.ndarray
    scores: np.ndarray
    width: int

    def save(self, folder: Path) -> None:
        """Write a folder of three arrays; equal scores give equal bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, values in vars(self).items():
            save_array(folder / f"{name}.npy", values)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the arrays that `save` wrote, memory-mapped; the manifest around them has their hashes."""
        keys, scores = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("keys", "scores"))
        return cls(keys, scores, int(np.load(folder / "width.npy")))

    def of(self, anchors: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """float32 scores of the pairs, of any shape; NaN for a pair that is not there, and at PADDING."""
        keys = anchors.astype(np.int64) * self.width + candidates
        if not len(self.keys):
            return np.full(keys.shape, np.nan, np.float32)
        positions = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        is_there = (self.keys[positions] == keys) & (candidates != PADDING)
        return np.where(is_there, self.scores[positions], np.float32(np.nan))

    def lowest(self, queries: np.ndarray, hits: int) -> np.ndarray:
        """(n,) float32: the lowest score of each query; 0 for a query with fewer than `hits` documents."""
        starts = np.searchsorted(self.keys, queries.astype(np.int64) * self.width)
        stops = np.searchsorted(self.keys, (queries.astype(np.int64) + 1) * self.width)
        full = stops - starts >= hits
        of_query = self.keys // self.width
        lowest = np.minimum.reduceat(self.scores, np.flatnonzero(np.diff(of_query, prepend=-1)))
        positions = np.minimum(np.searchsorted(np.unique(of_query), queries), len(lowest) - 1)
        return np.where(full, lowest[positions], np.float32(0))


def read_scored_pairs(path: Path, split: Split, collection: Collection) -> ScoredPairs:
    """Read the scores of a split's queries; other queries in the file are skipped.

    So are, with a warning, documents that the collection leaves out as they have no text.

    Raises ValueError, with the line, for a pair without a score, for a score that is not a finite number, for
    a pair that has two different scores, and for a document that the collection lacks; and if the file
    scores no query of the split.
    """
    documents, width = collection.documents, len(collection.documents)
    if is_listed(path):
        layout = layout_of(path)
        hits = listed_hits(path, layout, [layout.positives, layout.negatives], split.queries, scored=True)
    else:
        hits = read_hits(path)
    pairs = pd.concat(hit_blocks(path, hits, split, collection, np.arange(len(split.queries))))
    pairs["key"] = pairs["query"] * width + pairs["document"]
    pairs = pairs.sort_values("key", kind="stable")
    keys, scores = pairs["key"].to_numpy(), pairs["score"].to_numpy(np.float32)
    first = np.append(True, keys[1:] != keys[:-1])
    if len(different := np.flatnonzero(~first[1:] & (scores[1:] != scores[:-1]))):
        repeat = different[0] + 1
        query, row = divmod(int(keys[repeat]), width)
        pair = f"document {documents.ids[row]!r} again for query {split.queries.ids[query]!r}"
        line = line_of(path, int(pairs["number"].iloc[repeat]))
        raise line.error(f"{pair}, with another score", "one score for a pair", "keep one of the lines")
    return ScoredPairs(keys[first], scores[first], width)
