"""The documents of a stage that trains the query tower alone: their vectors stay, so they are searched live and looked up."""

import time
from dataclasses import replace

import numpy as np
import torch

from pyserini_ance.data.rankings import read_ranking
from pyserini_ance.negatives.live import Live
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.trainer.batch import Batch, TermRows
from pyserini_ance.trainer.findings import Findings
from pyserini_ance.vectors.index import FLAT


class FixedDocuments:
    """Those that `snapshot` sees, the checkpoint that the stage starts from; every later one sees the same.

    All processes make the same calls with equal vectors of queries, and have the same candidates. Indexes are trained from
    `seed`. `findings` measures what is found, against BM25 on the first process.
    """

    def __init__(self, stage: Stage, snapshot: Snapshot, seed: int):
        self.vectors, self.rows_of, self.device = snapshot.document_vectors, snapshot.data.training_rows_of, torch.device(snapshot.device)
        self.relation = snapshot.direction("query").relation
        self.live = {name: found for name, term in stage.terms.items() if (found := {i: s for i, s in enumerate(term.negatives) if s.live})}
        sources = [source for of_term in self.live.values() for source in of_term.values()]
        self.searches = {index: snapshot.standing_search(index, seed) for index in dict.fromkeys(source.index for source in sources)}
        held = FLAT in self.searches and snapshot.encoding.search == "torch" and snapshot.world.size == 1
        self.whole = snapshot.standing_vectors if held else None
        self.findings = Findings(self.relation, _bm25(snapshot, max((source.depth for source in sources), default=0)))

    def complete(self, batch: Batch, queries: torch.Tensor, share: float) -> tuple[Batch, torch.Tensor]:
        """The batch with what is found live for its query vectors (U, D), and the vectors of its documents (U, D), or of
        their passages.

        `share` is the batch's part of a step.
        """
        if self.live:
            asked = queries.detach().cpu().numpy()
            found = {name: self._found(name, asked, batch, share) for name in self.live}
            batch = replace(batch, terms={**batch.terms, **found})
        return batch, self.look_up(batch.unique("document"))

    def look_up(self, documents: np.ndarray) -> torch.Tensor:
        """(R, D) float32, without gradients; where the device has all of them, they do not leave it."""
        rows = self.rows_of(documents)[0]
        if self.whole is not None:
            return self.whole[torch.from_numpy(rows).to(self.device)]
        return torch.from_numpy(self.vectors[rows]).to(self.device)

    def _found(self, name: str, queries: np.ndarray, batch: Batch, share: float) -> TermRows:
        """The positives drawn give way to those that were found, among the candidates."""
        rows = batch.terms[name]
        asked = queries[batch.positions("query", rows.anchors)]
        found = [self._candidates(f"{name}.{place}", source, asked, rows, share) for place, source in self.live[name].items()]
        return replace(rows, positives=rows.positives[:, :0], negatives=np.concatenate([*found, rows.negatives], axis=1))

    def _candidates(self, name: str, source: Live, asked: np.ndarray, rows: TermRows, share: float) -> np.ndarray:
        start = time.perf_counter()
        _, found = self.searches[source.index](asked, source.depth)
        self.findings.add(name, rows.anchors, found, share, time.perf_counter() - start)
        return source.candidates(found, rows.anchors, rows.positives, self.relation)


def _bm25(snapshot: Snapshot, depth: int) -> np.ndarray | None:
    """(queries, at most `depth`) document rows of the training queries; None where nobody has asked BM25 for them."""
    path = snapshot.run_files.get("bm25")
    if not (depth and path and snapshot.world.is_main and path.exists()):
        return None
    ranked = read_ranking(path, snapshot.split, snapshot.collection.documents, depth).found
    return ranked[:, : int((ranked != PADDING).any(0).sum())]
