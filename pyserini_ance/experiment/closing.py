"""The closing evaluation of one row of the table: a ranking of the test queries, its measures, and what it took."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyserini_ance.data.collection import Split
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.trec import Qrels, read_qrels, read_run, write_run
from pyserini_ance.distributed.world import World
from pyserini_ance.measures.evaluate import evaluate, parse
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.models import Recipe, Test
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_object, write_json


@dataclass(frozen=True)
class Closing:
    """Evaluates rows of one run. A row's ranking and measures lie in `runs/<row>.*`; a row that is there is not redone.

    All processes of `world` make the same calls and have the same results; the first one reads and writes the files.
    """

    recipe: Recipe
    data: PreparedData
    run: RunDir
    device: str
    world: World

    def ranking(self, row: str) -> Path:
        return self.run.ranking(row, self.recipe.test.split)

    def query_ranking(self, row: str) -> Path:
        """Of queries for documents; BM25 has none."""
        return self.run.run_files / f"{row}.{self.recipe.test.split}.queries.trec"

    def measured(self, row: str) -> dict | None:
        path = self._record(row)
        return self.world.once(lambda: read_json_object(path))

    def measure(self, row: str, seconds: float, **more) -> dict:
        """Measure the ranking of `row` from its file, as anybody could do again, and record it."""
        return self.world.once(lambda: self._measure(row, seconds, more))

    def rank(self, row: str, checkpoint: Checkpoint) -> Snapshot:
        """Rank the test queries with a checkpoint and write the ranking of `row`; the view it was made from.

        Queries are encoded in float32 whatever `test.precision` says of the documents, because Pyserini's searcher does.
        """
        test = self.recipe.test
        encoding = self.recipe.encoding.model_copy(update={"precision": test.precision})
        where = (self.run.scratch, self.device, self.world, checkpoint.document_weights)
        snapshot = Snapshot(checkpoint.encoder, checkpoint.weights, self.data, encoding, *where)
        queries = self._queries(snapshot)
        scores, found = snapshot.rank(queries, snapshot.document_vectors, test.hits, snapshot.passages)
        self.world.once(lambda: self._write(row, scores, found))
        if test.query_measures:
            self._rank_queries(row, snapshot, queries)
        return snapshot

    def _rank_queries(self, row: str, snapshot: Snapshot, queries: np.ndarray) -> None:
        """The other direction, with the same vectors and scores."""
        answers, ids = self._split.relation("document").anchors, self.data.collection.documents.ids
        scores, found = snapshot.rank_for_documents(answers, queries, self.recipe.test.hits)
        asked, path = [ids[answer] for answer in answers], self.query_ranking(row)
        self.world.once(lambda: _write_ranking(path, row, asked, self._split.queries.ids, scores, found))

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
        return snapshot.encode_queries(self.recipe.test.split, np.arange(len(self._split.queries)), precision="fp32")

    def _record(self, row: str) -> Path:
        return self.run.run_files / f"{row}.json"

    def _measure(self, row: str, seconds: float, more: dict) -> dict:
        test = self.recipe.test
        qrels = read_qrels(self.run.qrels(test.split))
        values = evaluate(qrels, read_run(self.ranking(row)), parse(test.measures))
        if test.query_measures and self.query_ranking(row).exists():
            found = evaluate(reversed_qrels(qrels, self._split.qrels.threshold), read_run(self.query_ranking(row)), parse(test.query_measures))
            values |= dict(zip(query_columns(test), found.values(), strict=True))
        record = {"row": row, **values, "test seconds": round(seconds, 1), **more}
        write_json(self._record(row), record)
        return record

    @property
    def _split(self) -> Split:
        return self.data.collection.split(self.recipe.test.split)

    def _write(self, row: str, scores: np.ndarray, found: np.ndarray) -> None:
        _write_ranking(self.ranking(row), row, self._split.queries.ids, self.data.collection.documents.ids, scores, found)


def query_columns(test: Test) -> list[str]:
    """What the measures of query retrieval are called beside those of documents."""
    return [f"queries {measure}" for measure in parse(test.query_measures)]


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
