"""The closing evaluation of one row of the table: a ranking of the test queries, its measures, and what it took."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.collection import Split
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.trec import Qrels, read_qrels, read_run, write_run
from pyserini_ance.distributed.world import World
from pyserini_ance.experiment.candidates import best_of_each, read_candidates
from pyserini_ance.measures.compare import BM25
from pyserini_ance.measures.coverage import measure_by_answers
from pyserini_ance.measures.evaluate import evaluate
from pyserini_ance.measures.forgetting import CUTOFF
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.measure import parse
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.test import RERANKED, Test
from pyserini_ance.refresher.report import positive_ranks
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines, read_json_object, write_json
from pyserini_ance.vectors.precision import resolve_precision

log = logging.getLogger(__name__)

QUERIES = "queries "  # before the measures of query retrieval


@dataclass(frozen=True)
class Closing:
    """Evaluates rows of one run. A row's rankings, one a test split, and measures lie in `runs/<row>.*`; a row that is there is not redone.

    All processes of `world` make the same calls and have the same results; the first one reads and writes the files.
    """

    recipe: Recipe
    data: PreparedData
    run: RunDir
    device: str
    world: World

    def reranking(self, row: str, split: str) -> Path:
        """Of `test.rerank`; BM25 has none."""
        return self.run.ranking(row, f"{split}{RERANKED}")

    def query_ranking(self, row: str, split: str) -> Path:
        """Of queries for documents; BM25 has none."""
        return self.run.run_files / f"{row}.{split}.queries.trec"

    def measured(self, row: str) -> dict | None:
        path = self._record(row)
        return self.world.once(lambda: read_json_object(path))

    def measure(self, row: str, seconds: float | None, **more) -> dict:
        """Measure the rankings of `row` from their files, as anybody could do again, and record it; `seconds` that another row has are None."""
        return self.world.once(lambda: self._measure(row, seconds, more))

    def rank(self, row: str, checkpoint: Checkpoint) -> Snapshot:
        """Rank the test queries with a checkpoint and write the rankings of `row`; the view they were made from.

        Queries are encoded in float32 whatever `test.precision` says of the documents, because Pyserini's searcher does.
        """
        test, snapshot = self.recipe.test, self._snapshot(checkpoint)
        queries = self._queries(snapshot)
        scores, found = snapshot.rank(queries, snapshot.document_vectors, test.hits, snapshot.passages)
        self.world.once(lambda: self._write(row, scores, found))
        for split, of_split in zip(self._splits, self._apart(queries), strict=True):
            if split.name in test.reranked:
                self._rerank(row, split, snapshot, of_split)
            if test.query_measures_of(split.name):
                self._rank_queries(row, split, snapshot, of_split)
        return snapshot

    def rank_training_queries(self, stage: str, checkpoint: Checkpoint) -> None:
        """Record once the ranks of the training queries' positives with the last stage's result, as each refresh has them of its model.

        Not where documents are tested in another precision than they were mined in: rounding alone would change ranks.
        """
        snapshot = self._snapshot(checkpoint)
        mined = self.world.once(lambda: resolve_precision(self.recipe.encoding.precision, self.device))
        if mined != snapshot.precision:
            what = "the last episode of --forgetting is left out: documents were mined in %s and are tested in %s; set test.precision as encoding's"
            log.info(what, mined, snapshot.precision)
            return
        if self.world.once(lambda: any(r["event"] == "training_queries" for r in read_json_lines(self.run.metrics))):
            return  # a run that was stopped at its very end
        direction = snapshot.direction("query")
        ranks = positive_ranks(direction, snapshot.search("query", direction.anchors, "document", CUTOFF)[1])
        where = {"stage": stage, "step": self.recipe.stages[stage].steps, "weights": checkpoint.weights}
        RunLog(self.run, self.world.is_main).metric("training_queries", **where, positive_ranks=ranks)

    def _snapshot(self, checkpoint: Checkpoint) -> Snapshot:
        encoding = self.recipe.encoding.model_copy(update={"precision": self.recipe.test.precision})
        where = (self.run.scratch, self.device, self.world, checkpoint.document_weights)
        return Snapshot(checkpoint.encoder, checkpoint.weights, self.data, encoding, *where)

    def _rerank(self, row: str, split: Split, snapshot: Snapshot, queries: np.ndarray) -> None:
        """Another order, with the same scores, for the split's `queries` (Q, D)."""
        documents, rerank = self.data.collection.documents, self.recipe.test.rerank[split.name]

        def write() -> None:
            found = read_candidates(rerank, split, documents, self.run.ranking(BM25, split.name))
            pairs = np.nonzero(found != PADDING)
            scores = np.full(found.shape, -np.inf, np.float32)
            scores[pairs] = snapshot.score(queries, pairs[0], found[pairs])
            _write_ranking(self.reranking(row, split.name), row, split.queries.ids, documents.ids, *best_of_each(scores, found))

        self.world.once(write)

    def _rank_queries(self, row: str, split: Split, snapshot: Snapshot, queries: np.ndarray) -> None:
        """The other direction, with the same scores, for the split's `queries` (Q, D)."""
        answers, ids = split.relation("document").anchors, self.data.collection.documents.ids
        scores, found = snapshot.rank_for_documents(answers, queries, self.recipe.test.hits)
        asked, path = [ids[answer] for answer in answers], self.query_ranking(row, split.name)
        self.world.once(lambda: _write_ranking(path, row, asked, split.queries.ids, scores, found))

    def rank_by_indexes(self, row: str, snapshot: Snapshot) -> None:
        """Rank and measure the same queries by each of `test.indexes`, as rows of their own."""
        queries = self._queries(snapshot) if self.recipe.test.indexes else None
        for index in self.recipe.test.indexes:
            start, name = time.perf_counter(), _by_index(row, index)
            scores, found = snapshot.standing_search(index, self.recipe.seed)(queries, self.recipe.test.hits)
            self.world.once(lambda name=name, scores=scores, found=found: self._write(name, scores, found))
            self.measure(name, time.perf_counter() - start)

    def by_index(self, row: str) -> list[dict]:
        """The measures of `row` as each of `test.indexes` ranks."""
        return [self.measured(_by_index(row, index)) for index in self.recipe.test.indexes]

    def row(self, name: str, checkpoint: Checkpoint, **more) -> dict:
        """The measures of a checkpoint as row `name`."""
        if (known := self.measured(name)) is not None:
            return known
        start = time.perf_counter()
        snapshot = self.rank(name, checkpoint)
        seconds = time.perf_counter() - start
        self.rank_by_indexes(name, snapshot)
        return self.measure(name, seconds, **more)

    def _queries(self, snapshot: Snapshot) -> np.ndarray:
        """(Q, D) of all test queries, split after split."""
        rows = ((split.name, np.arange(len(split.queries))) for split in self._splits)
        return np.concatenate([snapshot.encode_queries(name, of_split, precision="fp32") for name, of_split in rows])

    def _apart(self, of_queries: np.ndarray) -> list[np.ndarray]:
        """What there is for all test queries, by split."""
        return np.split(of_queries, np.cumsum([len(split.queries) for split in self._splits])[:-1])

    def _record(self, row: str) -> Path:
        return self.run.run_files / f"{row}.json"

    def _measure(self, row: str, seconds: float | None, more: dict) -> dict:
        values = {name: value for split in self._splits for name, value in self._values(row, split).items()}
        record = {"row": row, **values, "test seconds": seconds and round(seconds, 1), **more}
        write_json(self._record(row), record)
        return record

    def _values(self, row: str, split: Split) -> dict[str, float]:
        """By column, of one split. BM25 puts nothing in another order, and ranks no queries."""
        test, name = self.recipe.test, split.name
        found = self._of_documents(name, split, self.run.ranking(row, name), test.measures_of(name))
        if name in test.reranked and (reranked := self.reranking(row, name)).exists():
            found |= self._of_documents(f"{name}{RERANKED}", split, reranked, parse(test.rerank[name].measures))
        if (measures := test.query_measures_of(name)) and (turned := self.query_ranking(row, name)).exists():
            judged = reversed_qrels(read_qrels(self.run.qrels(name)), split.qrels.threshold)
            found |= {test.column(name, f"{QUERIES}{m}"): value for m, value in evaluate(judged, read_run(turned), measures).items()}
        return found

    def _of_documents(self, name: str, split: Split, ranking: Path, measures: Sequence[Measure]) -> dict[str, float]:
        """By column, those of `name`, the split's ranking or another order of it."""
        run = read_run(ranking)
        if split.is_judged:
            values = evaluate(read_qrels(self.run.qrels(split.name)), run, measures)
        else:
            values = measure_by_answers(run, split.queries, self.data.collection.documents, measures)
        return {self.recipe.test.column(name, measure): value for measure, value in values.items()}

    @property
    def _splits(self) -> list[Split]:
        return [self.data.collection.split(name) for name in self.recipe.test.split]

    def _write(self, row: str, scores: np.ndarray, found: np.ndarray) -> None:
        ids = self.data.collection.documents.ids
        for split, *hits in zip(self._splits, self._apart(scores), self._apart(found), strict=True):
            _write_ranking(self.run.ranking(row, split.name), row, split.queries.ids, ids, *hits)


def measure_columns(test: Test) -> list[str]:
    """What the measures of documents are called."""
    return [test.column(split, measure) for split in test.split for measure in test.measures_of(split)]


def beside_columns(test: Test) -> list[str]:
    """What the measures beside them are called, which not each row has: of rankings in another order, and of query retrieval."""
    reranked = [column for column in test.columns.values() if column not in measure_columns(test)]
    return reranked + [test.column(split, f"{QUERIES}{measure}") for split in test.split for measure in test.query_measures_of(split)]


def reversed_qrels(qrels: Qrels, threshold: int) -> Qrels:
    """The judged queries of each document that is relevant, from grade `threshold` on, to one of them."""
    judged: Qrels = {}
    for query, grades in qrels.items():
        for document, grade in grades.items():
            judged.setdefault(document, {})[query] = grade
    return {document: grades for document, grades in judged.items() if max(grades.values()) >= threshold}


def _write_ranking(path: Path, row: str, asked: Sequence[str], ids: Sequence[str], scores: np.ndarray, found: np.ndarray) -> None:
    hits = zip(asked, found, scores, strict=True)
    path.parent.mkdir(exist_ok=True)
    write_run(path, ((q, ids[d], float(s)) for q, ds, ss in hits for d, s in zip(ds, ss, strict=True) if d != PADDING), row)


def _by_index(row: str, index: str) -> str:
    return f"{row}+{index}"
