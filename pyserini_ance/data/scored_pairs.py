"""Scores of pairs of a query and a document, from a file: what a teacher of another tool has left.

| file | scores |
|---|---|
| TREC run | the score column |
| training file of Tevatron or DPR | `score` of each listed passage |
| training file of FlagEmbedding | `pos_scores` and `neg_scores`, parallel to `pos` and `neg` |
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from pyserini_ance.data.collection import Collection, Split
from pyserini_ance.data.formats.lines import Line, shown
from pyserini_ance.data.formats.records import read_records
from pyserini_ance.data.formats.training_files import Layout, listed_passages
from pyserini_ance.data.rankings import HitBlocks, is_listed, layout_of
from pyserini_ance.data.trec import Hit, read_hits
from pyserini_ance.storage.files import path_in_errors


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """The scores of P pairs.

    keys: (P,) int64, ascending: the query's row times `width`, plus the document's row. scores: (P,) float32.
    """

    keys: np.ndarray
    scores: np.ndarray
    width: int

    def save(self, folder: Path) -> None:
        """Write the arrays into a folder."""
        for name, values in (("keys", self.keys), ("scores", self.scores)):
            with path_in_errors(folder / f"{name}.npy"):
                np.save(folder / f"{name}.npy", values, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path, width: int) -> Self:
        """Open the arrays that `save` wrote, memory-mapped."""
        keys, scores = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("keys", "scores"))
        return cls(keys, scores, width)

    def of(self, queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """(n,) float32 scores of the pairs; NaN for those that the file lacks."""
        return find_scores(self.keys, self.scores, queries.astype(np.int64) * self.width + documents)

    def lowest(self, queries: np.ndarray, hits: int) -> np.ndarray:
        """(n,) float32: the lowest score of each query; 0 for a query with fewer than `hits` documents."""
        starts = np.searchsorted(self.keys, queries.astype(np.int64) * self.width)
        stops = np.searchsorted(self.keys, (queries.astype(np.int64) + 1) * self.width)
        full = stops - starts >= hits
        of_query = self.keys // self.width
        lowest = np.minimum.reduceat(self.scores, np.flatnonzero(np.diff(of_query, prepend=-1)))
        positions = np.minimum(np.searchsorted(np.unique(of_query), queries), len(lowest) - 1)
        return np.where(full, lowest[positions], np.float32(0))


def find_scores(keys: np.ndarray, scores: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The scores, of `scores` (P,) by `keys` (P,) int64, ascending, of the keys `wanted`, of any shape.

    NaN for a key that is not there; float32.
    """
    if not len(keys):
        return np.full(wanted.shape, np.nan, np.float32)
    positions = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[positions] == wanted, scores[positions], np.float32(np.nan)).astype(np.float32)


def read_scored_pairs(path: Path, split: Split, collection: Collection) -> ScoredPairs:
    """Read the scores of a split's queries; other queries in the file are skipped.

    So are, with a warning, documents that the collection leaves out as they have no text.

    Raises ValueError, with the line, for a pair without a score, for a score that is not a finite number, for
    a pair that has two different scores, and for a document that the collection lacks; and if the file
    scores no query of the split.
    """
    documents, width = collection.documents, len(collection.documents)
    hits = _listed(path) if is_listed(path) else read_hits(path)
    blocks = [*HitBlocks(path, hits, split, collection, np.arange(len(split.queries)))]
    all_keys = np.concatenate([block.queries * width + block.documents for block in blocks])
    all_scores = np.concatenate([block.scores.astype(np.float32) for block in blocks])
    numbers = np.concatenate([block.numbers for block in blocks])
    order = np.argsort(all_keys, kind="stable")
    all_keys, all_scores = all_keys[order], all_scores[order]
    repeated = np.flatnonzero(all_keys[1:] == all_keys[:-1]) + 1
    if len(different := repeated[all_scores[repeated] != all_scores[repeated - 1]]):
        query_row, row = divmod(int(all_keys[different[0]]), width)
        pair = f"document {documents.ids[row]!r} again for query {split.queries.ids[query_row]!r}"
        line = Line(path, int(numbers[order[different[0]]]), "")
        raise line.error(f"{pair}, with another score", "one score for a pair", "keep one of the lines")
    first = np.append(True, all_keys[1:] != all_keys[:-1])
    return ScoredPairs(all_keys[first], all_scores[first], width)


def _listed(path: Path) -> Iterator[Hit]:
    layout = layout_of(path)
    for index, (line, record) in enumerate(read_records(path)):
        query = layout.question(line, index, record).id
        for key in (layout.positives, layout.negatives):
            if key in record:
                ids = [passage.id for passage in listed_passages(line, record, layout, key)]
                for id, score in zip(ids, _scores(line, record, layout, key, len(ids)), strict=True):
                    yield line.number, query, id, score


def _scores(line: Line, record: dict[str, Any], layout: Layout, key: str, count: int) -> list[float]:
    """The scores of the passages that a record lists under `key`."""
    name = f"{key}_scores" if layout.bare else f"{key}: score"
    scores = record.get(name) if layout.bare else [passage.get("score") for passage in record[key]]
    if (
        not isinstance(scores, list)
        or len(scores) != count
        or not all(type(score) in (int, float) and math.isfinite(score) for score in scores)
    ):
        expected = f"a finite number for each of its {count} passages"
        raise line.error(f"{name} {shown(scores)}", expected, "add the scores, or pass a TREC run")
    return [float(score) for score in scores]
