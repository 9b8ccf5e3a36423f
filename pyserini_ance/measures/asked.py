"""Asked: all that is to be said of a run file."""

from collections.abc import Sequence
from dataclasses import dataclass

from ir_measures import Measure

from pyserini_ance.data.trec import Qrels, Run
from pyserini_ance.measures.evaluate import evaluate, means, per_query
from pyserini_ance.measures.holes import holes
from pyserini_ance.measures.overlap import overlap


@dataclass(frozen=True)
class Asked:
    """Measures, hole rates and the overlap with the run `other`."""

    qrels: Qrels
    measures: Sequence[Measure]
    holes: Sequence[int]
    other: Run | None
    overlap_cutoff: int

    def totals(self, run: Run) -> dict[str, float]:
        return evaluate(self.qrels, run, self.measures) | means(self._beside(run))

    def per_query(self, run: Run) -> dict[str, dict[str, float]]:
        found, beside = per_query(self.qrels, run, self.measures), self._beside(run)
        return {query: values | beside.get(query, {}) for query, values in found.items()}

    def _beside(self, run: Run) -> dict[str, dict[str, float]]:
        unjudged = holes(self.qrels, run, self.holes) if self.holes else {}
        shared = {} if self.other is None else overlap(run, self.other, self.qrels, self.overlap_cutoff)
        return {query: unjudged.get(query, {}) | shared.get(query, {}) for query in unjudged.keys() | shared.keys()}
