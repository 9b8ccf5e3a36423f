"""Static negatives from a ranking made beforehand: BM25's by default, or any TREC run file."""

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from pyserini_ance.data.collection import Side
from pyserini_ance.data.direction import Direction
from pyserini_ance.data.formats.lines import find_file
from pyserini_ance.data.trec import read_run
from pyserini_ance.negatives.guards import KNOWN_POSITIVES, known_positive, take_out
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MinedSource
from pyserini_ance.negatives.table import PADDING, NegativeTable

KEY = "stages.<stage>.terms.<term>.negatives.<position>.file"


class Run(MinedSource):
    """`file: null` takes the run's own BM25 ranking of the training queries; else a TREC run over them."""

    kind: Literal["run"] = "run"
    file: Path | None = None
    depth: PositiveInt = 100

    @property
    def needs(self) -> frozenset[str]:
        return frozenset() if self.file else frozenset({"bm25"})

    def check_data(self, direction: Direction) -> None:
        super().check_data(direction)
        if direction.anchor != "query":
            raise ValueError("a `run` source ranks documents for queries; it cannot serve a term with `anchor: document`")
        if self.file:
            find_file(self.file, KEY)

    def mine(self, snapshot: Snapshot, anchor: Side) -> NegativeTable:
        path = find_file(self.file, KEY) if self.file else snapshot.run_files["bm25"]
        direction = snapshot.direction(anchor)
        found, scores = read_ranking(path, snapshot, self.depth + int(direction.relation.counts.max()))
        marked = {KNOWN_POSITIVES: known_positive(direction.relation, direction.anchors, found)}
        candidates, scores, dropped = take_out(found, scores, marked, self.depth)
        return NegativeTable(anchor, direction.candidate, direction.anchors, candidates, scores, self.kind, dropped)


def read_ranking(path: Path, snapshot: Snapshot, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Of a TREC run over the training queries: document rows (A, depth) by falling score, PADDING at the end, and their scores.
    Other queries are passed over.

    Raises ValueError for a document that the collection lacks, and when no training query occurs in the file.
    """
    queries, documents = snapshot.split.queries, snapshot.collection.documents
    found = np.full((len(queries), depth), PADDING, np.int32)
    scores = np.full((len(queries), depth), -np.inf, np.float32)
    ranking = read_run(path)
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
