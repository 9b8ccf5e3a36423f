"""The closing evaluation of one row of the table: a ranking of the test queries, its measures, and what it took."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.trec import read_qrels, read_run, write_run
from pyserini_ance.distributed.world import World
from pyserini_ance.measures.evaluate import evaluate, parse
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.recipe.models import Recipe
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
        return self.run.run_files / f"{row}.{self.recipe.test.split}.trec"

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
        scores, found = snapshot.rank(self._queries(snapshot), snapshot.document_vectors, test.hits, snapshot.passages)
        self.world.once(lambda: self._write(row, scores, found))
        return snapshot

    def rank_by_indexes(self, row: str, snapshot: Snapshot) -> None:
        """Rank and measure the same queries by each of `test.indexes`, as rows of their own."""
        for index in self.recipe.test.indexes:
            start, name = time.perf_counter(), _by_index(row, index)
            scores, found = snapshot.standing_search(index, self.recipe.seed)(self._queries(snapshot), self.recipe.test.hits)
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
        split = self.recipe.test.split
        return snapshot.encode_queries(split, np.arange(len(self.data.collection.split(split).queries)), precision="fp32")

    def _record(self, row: str) -> Path:
        return self.run.run_files / f"{row}.json"

    def _measure(self, row: str, seconds: float, more: dict) -> dict:
        test = self.recipe.test
        values = evaluate(read_qrels(self.run.qrels(test.split)), read_run(self.ranking(row)), parse(test.measures))
        record = {"row": row, **values, "test seconds": round(seconds, 1), **more}
        write_json(self._record(row), record)
        return record

    def _write(self, row: str, scores: np.ndarray, found: np.ndarray) -> None:
        queries, ids = self.data.collection.split(self.recipe.test.split).queries, self.data.collection.documents.ids
        hits = zip(queries.ids, found, scores, strict=True)
        self.run.run_files.mkdir(exist_ok=True)
        write_run(self.ranking(row), ((q, ids[d], float(s)) for q, ds, ss in hits for d, s in zip(ds, ss, strict=True) if d != PADDING), row)


def _by_index(row: str, index: str) -> str:
    return f"{row}+{index}"
