"""Static negatives from a ranking made beforehand: BM25's by default, or one of a file."""

from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt

from pyserini_ance.data.collection import Side
from pyserini_ance.data.direction import Direction
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.rankings import read_any_run
from pyserini_ance.data.trec import Run as TrecRun
from pyserini_ance.data.trec import read_run
from pyserini_ance.negatives.episode import Episode
from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MinedSource
from pyserini_ance.negatives.table import PADDING, NegativeTable

KEY = "stages.<stage>.terms.<term>.negatives.<position>.file"


class Run(MinedSource):
    """`file: null` takes the run's own BM25 ranking of the training queries; else a ranking for them.

    That is a TREC run, or another of the forms of `data/rankings.py`: MS MARCO's runs and triples, or what DPR's, Tevatron's
    and FlagEmbedding's training files list as negatives.
    """

    kind: Literal["run"] = "run"
    file: Path | None = None
    depth: PositiveInt = 100
    scores_positives: ClassVar[bool] = True

    @property
    def needs(self) -> frozenset[str]:
        return frozenset() if self.file else frozenset({"bm25"})

    def check_data(self, direction: Direction) -> None:
        super().check_data(direction)
        if direction.anchor != "query":
            raise ValueError("a `run` source ranks documents for queries; it cannot serve a term with `anchor: document`")
        if self.file:
            find_file(self.file, KEY)

    def mine(self, snapshot: Snapshot, anchor: Side, episode: Episode = Episode()) -> NegativeTable:
        path = find_file(self.file, KEY) if self.file else snapshot.run_files["bm25"]
        direction = snapshot.direction(anchor)
        ranking = read_any_run(path, snapshot.split.queries, snapshot.collection.documents)
        found, scores = _best(path, ranking, snapshot, self.depth + self.extra_depth(direction))
        return self.table_of(Candidates(snapshot, direction, found, scores, lambda: _positive_scores(ranking, snapshot)), self.depth)


def read_ranking(path: Path, snapshot: Snapshot, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """A TREC run over the training queries, as `_best` has it."""
    return _best(path, read_run(path), snapshot, depth)


def _best(path: Path, ranking: TrecRun, snapshot: Snapshot, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Document rows (A, depth) by falling score, PADDING at the end, and their scores. Other queries are passed over.

    Raises ValueError for a document that the collection lacks, and when no training query occurs in the file.
    """
    queries, documents = snapshot.split.queries, snapshot.collection.documents
    found = np.full((len(queries), depth), PADDING, np.int32)
    scores = np.full((len(queries), depth), -np.inf, np.float32)
    for row, query_id in enumerate(queries.ids):
        best = sorted(ranking.get(query_id, {}).items(), key=lambda hit: -hit[1])[:depth]
        rows = [documents.rows.get(document_id, PADDING) for document_id, _ in best]
        if PADDING in rows:
            raise ValueError(
                f"{path} ranks document {best[rows.index(PADDING)][0]!r} for query {query_id!r}, but the collection has no such document; "
                f"name a run over these {len(documents)} documents"
            )
        found[row, : len(best)] = rows
        scores[row, : len(best)] = [score for _, score in best]
    if (found == PADDING).all():
        raise ValueError(f"{path} ranks documents for none of the {len(queries)} training queries; is it a run of another split?")
    return found, scores


def _positive_scores(ranking: TrecRun, snapshot: Snapshot) -> np.ndarray:
    """(A,) float32: the best of each query's positives, NaN where none is ranked."""
    queries, ids, relation = snapshot.split.queries, snapshot.collection.documents.ids, snapshot.split.relation("query")
    best = np.full(len(queries), np.nan, np.float32)
    for row, query_id in enumerate(queries.ids):
        hits = ranking.get(query_id, {})
        best[row] = max((hits[ids[document]] for document in relation.of(row) if ids[document] in hits), default=np.nan)
    return best
