"""Evaluate one row of the results table: rank the test queries, measure the rankings, record what it took."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from ir_measures import Measure

from pyserini_ance.data.collection import Split
from pyserini_ance.data.known_positives import is_known_positive
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.trec import PADDING, Qrels, read_qrels, read_run, write_run
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.hardware import resolve_precision
from pyserini_ance.evaluation.answer_measures import measure_by_answers
from pyserini_ance.evaluation.metrics import evaluate
from pyserini_ance.evaluation.tables import BM25
from pyserini_ance.negatives.positives import positive_ranks
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.pipeline.bm25_rankings import read_candidates, sort_by_score
from pyserini_ance.pipeline.initial_rankings import InitialRankings
from pyserini_ance.recipe.evaluation_settings import RERANK_SUFFIX, FinalEvaluation, parse_measures
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import TRAINING_RANKS_CUTOFF, RunDir
from pyserini_ance.storage.files import read_json_lines, read_json_object, whole_file, write_json
from pyserini_ance.vectors.search import search_arrays

QUERIES = "queries "  # prefix of the columns of query retrieval


@dataclass(frozen=True)
class FinalEvaluator:
    """Evaluates the rows of one run's results table.

    A row's rankings (one per test split) and its measures are the files `runs/<row>.*`; an existing row is
    not evaluated again. All processes of `world` make the same calls and get the same results; the main
    process reads and writes the files.
    """

    recipe: Recipe
    data: PreparedData
    run: RunDir
    device: str
    world: World

    def reranked_file(self, row: str, split: str) -> Path:
        """The ranking of `final_evaluation.rerank`; BM25 has none."""
        return self.run.ranking(row, f"{split}{RERANK_SUFFIX}")

    def query_ranking(self, row: str, split: str) -> Path:
        """The ranking of queries for documents; BM25 has none."""
        return self.run.run_files / f"{row}.{split}.queries.trec"

    def read_row(self, row: str) -> dict[str, Any] | None:
        """The recorded measures of `row`, None if it has not been evaluated."""
        path = self._record(row)
        return self.world.on_main(lambda: read_json_object(path))

    def measure(self, row: str, seconds: float | None, **more: Any) -> dict[str, Any]:
        """Measure the ranking files of `row` and record the result.

        The files suffice to repeat the measurement. `seconds` is None if another row has recorded them;
        `more` is added to the record.
        """
        return self.world.on_main(lambda: self._measure(row, seconds, more))

    def rank(self, row: str, checkpoint: Checkpoint) -> Snapshot:
        """Rank the test queries with a checkpoint and write the rankings of `row`; returns the snapshot that
        was searched.

        Queries are encoded in float32 regardless of `final_evaluation.precision`, which holds for documents,
        because Pyserini's searcher does so.
        """
        test, snapshot = self.recipe.final_evaluation, self._snapshot(checkpoint)
        queries = self._queries(snapshot)
        scores, rows = snapshot.rank(queries, snapshot.document_vectors, test.hits, snapshot.passages)
        self.world.on_main(lambda: self._write(row, scores, rows))
        for split, of_split in zip(self._splits, self._by_split(queries), strict=True):
            if split.name in test.reranked:
                self._rerank(row, split, snapshot, of_split)
            if test.query_measures_of(split.name):
                self._rank_queries(row, split, snapshot, of_split)
        return snapshot

    def rank_training_queries(self, stage: str, checkpoint: Checkpoint) -> None:
        """Record the ranks of the training queries' positives under the last stage's result, once.

        The ranks are an array file; each refresh writes one of its checkpoint. If documents are evaluated in
        another precision than they were mined in, the record holds both and no file is written: rounding
        alone would change ranks.
        """
        if self.world.on_main(self._has_ranked_training_queries):
            return  # the run was stopped just before its end
        snapshot = self._snapshot(checkpoint)
        mined = self.world.on_main(lambda: resolve_precision(self.recipe.encoding.precision, self.device))
        if mined == snapshot.precision:
            ranks = self._training_ranks(snapshot)
            self.world.on_main(lambda: self._write_training_ranks(ranks))
        RunLog(self.run, self.world.is_main).metric(
            "training_queries",
            stage=stage,
            step=self.recipe.stages[stage].steps,
            weights=checkpoint.weights,
            precisions={"mined": mined, "evaluated": snapshot.precision},
        )

    def _training_ranks(self, snapshot: Snapshot) -> np.ndarray:
        """(Q,) int32: the ranks of the training queries' positives; 0 beyond TRAINING_RANKS_CUTOFF."""
        share = self.world.rank, self.world.size
        anchor_set = replace(snapshot.anchor_set("query"), share=share)
        rows = snapshot.search("query", anchor_set.anchors, "document", TRAINING_RANKS_CUTOFF)[1]
        known = is_known_positive(anchor_set.known_positives, anchor_set.anchors, rows)
        return self.world.gather_rows(positive_ranks(known))

    def _write_training_ranks(self, ranks: np.ndarray) -> None:
        with whole_file(self.run.training_ranks) as file:
            np.save(file, ranks)

    def _has_ranked_training_queries(self) -> bool:
        return any(record["event"] == "training_queries" for record in read_json_lines(self.run.metrics))

    def _snapshot(self, checkpoint: Checkpoint) -> Snapshot:
        precision = self.recipe.final_evaluation.precision
        return Snapshot(
            checkpoint.encoder,
            checkpoint.weights,
            self.data,
            self.recipe.encoding.model_copy(update={"precision": precision}),
            self.run.scratch,
            self.device,
            self.world,
            checkpoint.document_weights,
        )

    def _rerank(self, row: str, split: Split, snapshot: Snapshot, queries: np.ndarray) -> None:
        """Rerank the split's candidates with the same scores; `queries`: (Q, D) float32."""
        collection, rerank = self.data.collection, self.recipe.final_evaluation.rerank[split.name]

        def write() -> None:
            candidates = read_candidates(rerank, split, collection, self.run.ranking(BM25, split.name))
            pairs = np.nonzero(candidates != PADDING)
            scores = np.full(candidates.shape, -np.inf, np.float32)
            scores[pairs] = snapshot.score(queries, pairs[0], candidates[pairs])
            path = self.reranked_file(row, split.name)
            ids = collection.documents.ids
            _write_ranking(path, row, split.queries.ids, ids, *sort_by_score(scores, candidates))

        self.world.on_main(write)

    def _rank_queries(self, row: str, split: Split, snapshot: Snapshot, queries: np.ndarray) -> None:
        """Rank the split's queries for each relevant document, with the same scores; `queries`: (Q, D)
        float32."""
        answers, ids = split.known_positives("document").anchors, self.data.collection.documents.ids
        scores, rows = snapshot.rank_for_documents(answers, queries, self.recipe.final_evaluation.hits)
        documents, path = [ids[answer] for answer in answers], self.query_ranking(row, split.name)
        self.world.on_main(lambda: _write_ranking(path, row, documents, split.queries.ids, scores, rows))

    def rank_by_indexes(self, row: str, snapshot: Snapshot) -> None:
        """Rank and measure the same queries with each of `final_evaluation.indexes`; each index has a row of
        its own."""
        test = self.recipe.final_evaluation
        if not test.indexes:
            return
        queries = self._queries(snapshot)
        for index in test.indexes:
            start, name = time.perf_counter(), _index_row(row, index)
            search = snapshot.static_index(index, self.recipe.seed)
            scores, rows = search_arrays(search, queries, test.hits)
            self._write_on_main(name, scores, rows)
            self.measure(name, time.perf_counter() - start)

    def index_rows(self, row: str) -> list[dict[str, Any]]:
        """The measures of `row` as each of `final_evaluation.indexes` ranks."""
        return [self._existing_row(_index_row(row, index)) for index in self.recipe.final_evaluation.indexes]

    def evaluate_row(self, name: str, checkpoint: Checkpoint, **more: Any) -> dict[str, Any]:
        """The measures of a checkpoint as row `name`, evaluated unless the row exists."""
        if (recorded := self.read_row(name)) is not None:
            return recorded
        start = time.perf_counter()
        snapshot = self.rank(name, checkpoint)
        seconds = time.perf_counter() - start
        self.rank_by_indexes(name, snapshot)
        return self.measure(name, seconds, **more)

    def evaluate_initial_row(self, name: str, checkpoint: Checkpoint, **more: Any) -> dict[str, Any]:
        """As `evaluate_row`, of weights that this run has not trained: other runs may have ranked with them.

        Such a row has no seconds.
        """
        if (recorded := self.read_row(name)) is not None:
            return recorded
        shared = InitialRankings(name, checkpoint, self.recipe, self.data, self.run, self.world)
        if not shared.suffice:
            return self.evaluate_row(name, checkpoint, **more)
        if self.world.on_main(shared.copy_to_run):
            return self.measure(name, None, **more)
        record = self.evaluate_row(name, checkpoint, **more)
        self.world.on_main(shared.copy_to_cache)
        return record

    def _existing_row(self, row: str) -> dict[str, Any]:
        record = self.read_row(row)
        assert record is not None, f"row {row} has not been evaluated"
        return record

    def _queries(self, snapshot: Snapshot) -> np.ndarray:
        """Vectors of all test queries, split after split: (Q, D) float32."""
        rows = ((split.name, np.arange(len(split.queries))) for split in self._splits)
        return np.concatenate(
            [snapshot.encode_queries(name, of_split, precision="fp32") for name, of_split in rows]
        )

    def _by_split(self, of_queries: np.ndarray) -> list[np.ndarray]:
        """Split an array over all test queries into one per split."""
        return np.split(of_queries, np.cumsum([len(split.queries) for split in self._splits])[:-1])

    def _record(self, row: str) -> Path:
        return self.run.run_files / f"{row}.json"

    def _measure(self, row: str, seconds: float | None, more: dict[str, Any]) -> dict[str, Any]:
        values = {name: value for split in self._splits for name, value in self._values(row, split).items()}
        record = {"row": row, **values, "test seconds": seconds and round(seconds, 1), **more}
        write_json(self._record(row), record)
        return record

    def _values(self, row: str, split: Split) -> dict[str, float]:
        """The measures of one split, by column. BM25 neither reranks nor ranks queries."""
        test, name = self.recipe.final_evaluation, split.name
        values = self._document_measures(name, split, self.run.ranking(row, name), test.measures_of(name))
        if name in test.reranked and (reranked := self.reranked_file(row, name)).exists():
            measures = parse_measures(test.rerank[name].measures)
            values |= self._document_measures(f"{name}{RERANK_SUFFIX}", split, reranked, measures)
        query_measures, ranking = test.query_measures_of(name), self.query_ranking(row, name)
        if query_measures and ranking.exists():
            judged = reversed_qrels(read_qrels(self.run.qrels(name)), split.qrels.threshold)
            of_queries = evaluate(judged, read_run(ranking), query_measures)
            values |= {test.column(name, f"{QUERIES}{m}"): value for m, value in of_queries.items()}
        return values

    def _document_measures(
        self, name: str, split: Split, ranking: Path, measures: Sequence[Measure]
    ) -> dict[str, float]:
        """Measure a ranking, by column; `name` is that of the split or of its reranking."""
        run = read_run(ranking)
        if split.is_judged:
            values = evaluate(read_qrels(self.run.qrels(split.name)), run, measures)
        else:
            values = measure_by_answers(run, split.queries, self.data.collection.documents, measures)
        column = self.recipe.final_evaluation.column
        return {column(name, measure): value for measure, value in values.items()}

    @property
    def _splits(self) -> list[Split]:
        return [self.data.collection.split(name) for name in self.recipe.final_evaluation.split]

    def _write_on_main(self, row: str, scores: np.ndarray, rows: np.ndarray) -> None:
        self.world.on_main(lambda: self._write(row, scores, rows))

    def _write(self, row: str, scores: np.ndarray, rows: np.ndarray) -> None:
        ids = self.data.collection.documents.ids
        for split, *hits in zip(self._splits, self._by_split(scores), self._by_split(rows), strict=True):
            _write_ranking(self.run.ranking(row, split.name), row, split.queries.ids, ids, *hits)


def measure_columns(test: FinalEvaluation) -> list[str]:
    """The columns of the document measures."""
    return [test.column(split, measure) for split in test.split for measure in test.measures_of(split)]


def extra_columns(test: FinalEvaluation) -> list[str]:
    """The columns that only some rows have: measures of reranked documents and of query retrieval."""
    documents = measure_columns(test)
    reranked = [column for column in test.columns.values() if column not in documents]
    return reranked + [
        test.column(split, f"{QUERIES}{measure}")
        for split in test.split
        for measure in test.query_measures_of(split)
    ]


def reversed_qrels(qrels: Qrels, threshold: int) -> Qrels:
    """The judged queries of each document that is relevant to one of them, that is of grade `threshold` or
    above."""
    judged: Qrels = {}
    for query, grades in qrels.items():
        for document, grade in grades.items():
            judged.setdefault(document, {})[query] = grade
    return {document: grades for document, grades in judged.items() if max(grades.values()) >= threshold}


def _write_ranking(
    path: Path, row: str, queries: Sequence[str], ids: Sequence[str], scores: np.ndarray, rows: np.ndarray
) -> None:
    """Write rows (Q, k) of `ids` with their scores (Q, k) as a TREC run; PADDING is skipped."""
    path.parent.mkdir(exist_ok=True)
    hits = (
        (query, ids[document], score)
        for query, documents, of_query in zip(queries, rows, scores, strict=True)
        for document, score in zip(documents.tolist(), of_query.tolist(), strict=True)
        if document != PADDING
    )
    write_run(path, hits, row)


def _index_row(row: str, index: str) -> str:
    return f"{row}+{index}"
