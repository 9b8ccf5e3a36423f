"""Frozen documents: a stage that trains the query tower alone searches their vectors live."""

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pyserini_ance.data.known_positives import KnownPositives, is_known_positive, leave_out
from pyserini_ance.data.rankings import read_ranking
from pyserini_ance.encoders.encoder import to_device
from pyserini_ance.negatives.live import Live
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.trainer.batch import Batch
from pyserini_ance.vectors.faiss_index import FLAT
from pyserini_ance.vectors.search import resolve_backend

RANKS = 10


def search_measures(
    known_positives: KnownPositives, rows: np.ndarray, hits: np.ndarray, bm25: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Measures (B,) of the documents `hits` (B, k), best first, for the training queries `rows` (B,).

    `bm25` (B, n) holds BM25's ranking for the same queries, filled with PADDING; None: it is not compared.
    """
    is_hit, top_k = is_known_positive(known_positives, rows, hits), hits.shape[1]
    top = is_hit[:, :RANKS]
    measures = {f"RR@{RANKS}": np.where(top.any(1), 1 / (top.argmax(1) + 1), 0.0)}
    measures[f"R@{top_k}"] = is_hit.sum(1) / known_positives.counts[rows]
    if bm25 is not None:
        n = min(top_k, bm25.shape[1])
        bm25 = bm25[:, :n]
        shared = (hits[:, :n, None] == bm25[:, None, :]) & (bm25 != PADDING)[:, None, :]
        measures[f"BM25 overlap@{n}"] = shared.any(2).mean(1)
    return measures


class FrozenDocuments:
    """The document vectors of the stage's initial checkpoint; they stay the same for all later checkpoints.

    All processes make the same calls with equal query vectors and get the same candidates. Indexes are
    trained with `seed`. `seconds` is the time spent on the vectors, by part.
    """

    def __init__(self, stage: Stage, snapshot: Snapshot, seed: int):
        """Encode the documents, or reuse vectors of the same document tower, whose hash stays the same in
        this stage."""
        self.vectors, self.rows_of = snapshot.document_vectors, snapshot.data.training_rows_of
        self.device = torch.device(snapshot.device)
        self.known_positives = snapshot.anchor_set("query").known_positives
        self.own = snapshot.anchor_set("query").own
        self.drawing = {name: stage.drawing_term(name) for name in stage.terms}
        self.live = [  # term, position in the term, source
            (name, position, source)
            for name, term in stage.terms.items()
            for position, source in enumerate(term.negatives)
            if isinstance(source, Live)
        ]
        sources = [source for *_, source in self.live]
        indexes = dict.fromkeys(source.index for source in sources)
        self.searches = {index: snapshot.static_index(index, seed) for index in indexes}
        by_torch = resolve_backend(snapshot.encoding.search, snapshot.device) == "torch"
        is_there = by_torch or self.device.type == "cpu"  # the search holds them, or they are mapped
        held = FLAT in self.searches and is_there and snapshot.world.size == 1
        self.whole = snapshot.resident_vectors if held else None
        top_k = max((source.top_k for source in sources), default=0)
        path = snapshot.data.training_rankings.get("bm25")
        self.bm25: np.ndarray | None = None  # (queries, n) BM25's ranking, on the main process
        if top_k and path and snapshot.world.is_main and path.exists():
            ranked = read_ranking(path, snapshot.split, snapshot.collection, top_k).rows
            self.bm25 = ranked[:, : int((ranked != PADDING).any(0).sum())]
        self._measured: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._search_seconds = 0.0
        self.seconds = {part: round(seconds, 3) for part, seconds in snapshot.seconds.items()}

    def add_live_candidates(
        self, batch: Batch, queries: torch.Tensor, share: float, known_positives: KnownPositives | None = None
    ) -> tuple[Batch, torch.Tensor]:
        """Search with the query vectors (U, D) of a batch that is a `share` of a step.

        Return the batch with the live candidates, and the vectors (R, D) of its documents, or of their
        passages. `known_positives` are those of the step's queries; None: the judged ones.
        """
        if self.live:
            terms, known = dict(batch.terms), known_positives or self.known_positives
            candidates = defaultdict(list)
            for name, source, hits in self._search(batch, queries.detach(), share, known):
                rows = terms[name]
                candidates[name].append(source.candidates(hits, rows.anchors, rows.positives, known))
            for name, of_sources in candidates.items():
                negatives = np.concatenate([*of_sources, terms[name].negatives], axis=1)
                drawn = terms[name].positives  # which live candidates replace
                terms[name] = replace(terms[name], positives=drawn[:, :0], negatives=negatives)
            own = {name: of if (of := self.drawing[name]) in candidates else name for name in terms}
            batch = replace(batch, terms={name: terms[of] for name, of in own.items()})  # others stay
        documents = self.rows_of(batch.unique["document"])[0]
        if self.whole is not None:  # what the device holds stays there
            return batch, self.whole[to_device(self.device, documents)[0]]
        return batch, to_device(self.device, self.vectors[documents])[0]

    def measure(
        self, name: str, rows: np.ndarray, hits: np.ndarray, share: float, known: KnownPositives
    ) -> None:
        """Measure `hits` (B, k), best first, of the queries `rows` (B,), a `share` of the step's, under the
        term and position of their source (`query.0`), by the `known` positives of these queries."""
        bm25 = None if self.bm25 is None else self.bm25[rows]
        for measure, each in search_measures(known, rows, hits, bm25).items():
            self._measured[name][measure] += share * float(each.mean())

    def pop_metrics(self) -> dict[str, Any]:
        """Return the measures of the finished step's searches, and reset them; empty without searches."""
        found = {
            name: {measure: round(value, 6) for measure, value in measures.items()}
            for name, measures in self._measured.items()
        }
        record = {"found": found, "search_seconds": round(self._search_seconds, 4)} if found else {}
        self._measured.clear()
        self._search_seconds = 0.0
        return record

    def _search(
        self, batch: Batch, queries: torch.Tensor, share: float, known: KnownPositives
    ) -> Iterator[tuple[str, Live, np.ndarray]]:
        """Yield each live source with its term and the document rows (B, k) that it retrieves, best first;
        the host waits once all searches are launched."""
        start, launched = time.perf_counter(), []
        for name, _, source in self.live:
            positions = batch.positions("query", batch.terms[name].anchors)
            anchors = queries[to_device(queries.device, positions)[0]]
            launched.append(self.searches[source.index](anchors, source.top_k + (self.own is not None))[1])
        hits = [on_device.cpu().numpy() for on_device in launched]
        self._search_seconds += time.perf_counter() - start
        for (name, position, source), rows in zip(self.live, hits, strict=True):
            of_term = batch.terms[name].anchors
            if self.own is not None:
                rows = leave_out(self.own[of_term], np.zeros(rows.shape, np.float32), rows, source.top_k)[1]
            self.measure(f"{name}.{position}", of_term, rows, share, known)
            yield name, source, rows
