"""Two stages: the first documents of a ranking, put into a new order by a model that reads query and document together.

An output folder is a query log, and at the end has `first-K.trec` for each depth and `measures.json`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from ir_measures import Measure
from tqdm import tqdm

from pyserini_ance.data.trec import Qrels, Run, read_run, write_run
from pyserini_ance.experiment.bm25 import bm25_index
from pyserini_ance.experiment.query_log import QueryLog
from pyserini_ance.experiment.ranked import Ranked, named
from pyserini_ance.measures.compare import BM25
from pyserini_ance.measures.evaluate import best_first, row_of
from pyserini_ance.measures.latency import latency
from pyserini_ance.rerankers.cross_encoder import Pair, text_of
from pyserini_ance.storage.files import write_json

Scorer = Callable[[Sequence[Pair]], np.ndarray]  # (P,) float32
DECIMALS = 6  # of the scores in TREC runs
FIRST_STAGE = "first stage"


@dataclass(frozen=True)
class Reranking:
    """The first `depths[-1]` documents of `ranked` are scored, once, in slices that end at each of the rising `depths`.

    So the latency of a depth is that of its slices: what this many documents took, batches that end there included. It is measured by
    `qrels` instead of the collection's, which may lack judgments that training has no use for.
    """

    ranked: Ranked
    depths: tuple[int, ...]
    folder: Path
    measures: Sequence[Measure]
    qrels: Qrels | None = None
    template: str | None = None

    def begin(self, model: str, **settings) -> None:
        """Say in the folder what is being done. Raises FileExistsError when it holds something else, ValueError for a ranking that is not so
        deep, or that cannot be measured as asked: scoring takes long, and that is not to be learnt after it.
        """
        self.ranked.check_depth(self.depths[-1])
        _ = self.before
        asked = {"model": model, **settings, "template": self.template, "depths": list(self.depths)}
        self._log.begin(asked | self.ranked.about, model)

    def score(self, scorer: Scorer) -> None:
        """Score what is not scored yet. The first query is scored twice: a model's first batch is slow, which is nobody's latency."""
        done = self._log.records
        left = [query for query in self.ranked.asked if query not in done]
        if left:
            scorer(self._pairs(left[0], self._top(left[0])[: self.depths[0]]))
        total = sum(len(self._top(query)) for query in left)
        with tqdm(total=total, desc="rerank", unit="pair", mininterval=1) as bar:
            for query in left:
                self._log.append(self._scored(query, scorer))
                bar.update(len(self._top(query)))

    @cached_property
    def before(self) -> dict[str, float]:
        """The measures of the ranking as it was."""
        return self._measured(self.ranked.run)

    def rows(self, searched_ms: Sequence[float] = ()) -> list[dict]:
        """Write the runs and `measures.json`; the rows of a table, the ranking as it was first, with what its searches took if that is known."""
        records = list(self._log.records.values())
        searched = latency(searched_ms) if searched_ms else {}
        rows = [{"ranking": FIRST_STAGE, **self.before, **searched}]
        for place, depth in enumerate(self.depths):
            path = self.folder / f"first-{depth}.trec"
            self._write(path, {record["query"]: record["scores"][:depth] for record in records})
            waited = latency([sum(record["ms"][: place + 1]) for record in records])
            rows.append({"ranking": f"first {depth}", **self._measured(read_run(path)), **waited})
        write_json(self.folder / "measures.json", {"queries": len(records), "rows": rows})
        return rows

    def _measured(self, run: Run) -> dict[str, float]:
        return self.ranked.measure(run, self.measures, self.qrels)

    def _scored(self, query: str, scorer: Scorer) -> dict:
        top, scores, waited = self._top(query), [], []
        for start, stop in pairwise((0, *self.depths)):
            began = time.perf_counter()
            scores += scorer(self._pairs(query, top[start:stop])).tolist()
            waited.append(round(1000 * (time.perf_counter() - began), 3))
        return {"query": query, "scores": scores, "ms": waited}

    def _top(self, query: str) -> list[str]:
        return best_first(self.ranked.run[query])[: self.depths[-1]]

    def _pairs(self, query: str, documents: Sequence[str]) -> list[Pair]:
        queries, texts = self.ranked.queries, self.ranked.collection.documents
        asked = queries.columns["text"][queries.rows[query]]
        return [(asked, text_of(texts[row_of(texts, document)], self.template)) for document in documents]

    def _write(self, path: Path, scores: dict[str, list[float]]) -> None:
        rows = ((query, document, score) for query in scores for document, score in reordered(self.ranked.run[query], scores[query]).items())
        write_run(path, rows, "pyserini_ance")

    @property
    def _log(self) -> QueryLog:
        return QueryLog(self.folder)


def timing_of(source: str, ranked: Ranked, queries: int) -> Callable[[], list[float]]:
    """What searches so many queries by the model of a run directory, or by its BM25, and returns the milliseconds of each.

    Raises ValueError for any other ranking.
    """
    from pyserini_ance.pyserini_bridge.first_stage import time_bm25, time_dense

    folder, row = named(source)
    texts, hits = [ranked.queries[ranked.queries.rows[query]]["text"] for query in ranked.asked[:queries]], ranked.recipe.test.hits
    bm25 = bm25_index(ranked.recipe, ranked.collection)
    if ranked.file == folder.final_run(ranked.split) and folder.index.is_dir():
        return lambda: time_dense(folder.model, folder.index, texts, hits)
    if row == BM25 and ranked.recipe.bm25 and bm25.is_dir():
        return lambda: time_bm25(bm25, ranked.recipe.bm25.k1, ranked.recipe.bm25.b, texts, hits)
    raise ValueError(
        f"{ranked.name} was not searched for with what lies here; only a run directory's model (with {folder.index}) and its row {BM25} "
        f"(with {bm25}) can be timed; leave out --time-first-stage"
    )


def reordered(hits: dict[str, float], scores: Sequence[float]) -> dict[str, float]:
    """`hits` with their best replaced by their new `scores`, best first by trec_eval's order; the others follow as they were.

    They get scores below all new ones. Papers leave them out, which no measure sees that looks only at what was reranked; kept, recall
    beyond it is still that of the first stage.
    """
    order = best_first(hits)
    new = {document: round(score, DECIMALS) for document, score in zip(order, scores, strict=False)}
    floor = np.floor(min(new.values()))
    rest = {document: float(floor - place) for place, document in enumerate(order[len(new) :], start=1)}
    return {document: new[document] for document in best_first(new)} | rest
