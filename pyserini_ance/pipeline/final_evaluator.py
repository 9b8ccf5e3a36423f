"""Evaluate the rows of the results table: rank the test queries, measure the rankings, record the result."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import batched
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.data.collection import Split
from pyserini_ance.data.known_positives import is_known_positive, leave_out
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.trec import Qrels, Rows, read_qrels, read_run, write_run
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.hardware import resolve_precision
from pyserini_ance.evaluation.answer_measures import measure_by_answers
from pyserini_ance.evaluation.metrics import evaluate
from pyserini_ance.evaluation.tables import BM25, BYTES, HYBRID
from pyserini_ance.negatives.mined import positive_ranks
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING
from pyserini_ance.pipeline.bm25_rankings import read_candidates
from pyserini_ance.pyserini_bridge.export import python_program
from pyserini_ance.recipe.evaluation_settings import RERANK_SUFFIX
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import TRAINING_RANKS_CUTOFF, RunDir
from pyserini_ance.storage.files import read_json_lines, read_json_object, save_array, write_json
from pyserini_ance.vectors.faiss_index import FLAT
from pyserini_ance.vectors.search import search_arrays

QUERIES_SUFFIX = ".queries"  # of the split in the name of a ranking of queries for documents
QUERIES = "queries "  # prefix of the columns of query retrieval
METHOD = "normalize"  # of the hybrid: each query's scores scaled to 0-1 in each ranking, then summed
QUERIES_PER_BLOCK = 256  # of the hybrid: with 1,000 hits of two rankings, a block takes 200 MB


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
    world: World

    def read_row(self, row: str) -> dict[str, Any] | None:
        """The recorded measures of `row`, None if it has not been evaluated."""
        return self.world.on_main(lambda: read_json_object(self.run.run_files / f"{row}.json"))

    def evaluate_row(self, name: str, checkpoint: Checkpoint, **more: Any) -> dict[str, Any]:
        """The measures of a checkpoint as row `name`, evaluated unless the row exists."""
        return self.read_row(name) or self.evaluate(name, checkpoint, **more)[0]

    def evaluate(self, name: str, checkpoint: Checkpoint, **more: Any) -> tuple[dict[str, Any], Snapshot]:
        """Rank and measure row `name`; the measures, and the snapshot that was searched."""
        start = time.perf_counter()
        snapshot = self.rank(name, checkpoint)
        seconds = time.perf_counter() - start
        self.rank_by_indexes(name, snapshot)
        return self.measure(name, seconds, **self.size(snapshot), **more), snapshot

    def rank(self, row: str, checkpoint: Checkpoint) -> Snapshot:
        """Rank the test queries with a checkpoint and write the rankings of `row`; returns the snapshot that
        was searched.

        Queries are encoded in float32 regardless of `final_evaluation.precision`, which holds for documents,
        because Pyserini's searcher does so.
        """
        test, ids = self.recipe.final_evaluation, self.data.collection.documents.ids
        snapshot = self._snapshot(checkpoint)
        queries = self._queries(snapshot)
        vectors, passages = snapshot.document_vectors, snapshot.passages
        scores, rows = snapshot.rank(queries, vectors, test.hits, passages, own=self._own_documents)
        self._write_row(row, scores, rows)
        for split, of_split in zip(self._splits, self._by_split(queries), strict=True):
            if split.name in test.reranked:
                self.world.on_main(partial(self._rerank, row, split, snapshot, of_split))
            if test.query_measures_of(split.name):  # rank the queries for each relevant document
                answers = split.known_positives("document").anchors
                own = self.data.collection.own_documents(split)
                found = snapshot.rank_for_documents(answers, of_split, test.hits + (own is not None))
                if own is not None:  # the query that a document's id names, as it is the other way round
                    query_of = np.full(len(ids), PADDING)
                    query_of[own[own != PADDING]] = np.flatnonzero(own != PADDING)
                    found = leave_out(query_of[answers], *found, test.hits)
                path = self.run.ranking(row, f"{split.name}{QUERIES_SUFFIX}")
                documents = [ids[answer] for answer in answers]
                self.world.on_main(partial(write_ranking, path, row, documents, split.queries.ids, *found))
        return snapshot

    def _rerank(self, row: str, split: Split, snapshot: Snapshot, queries: np.ndarray) -> None:
        """Rerank the candidates with the same scores, on the main process; `queries`: (Q, D) float32."""
        ranking = self.recipe.final_evaluation.rerank[split.name]
        if ranking == BM25:
            ranking = self.run.ranking(BM25, split.name)
        candidates = read_candidates(Path(ranking), split, self.data.collection)
        pairs = np.nonzero(candidates != PADDING)
        scores = np.full(candidates.shape, -np.inf, np.float32)
        scores[pairs] = snapshot.score(queries, pairs[0], candidates[pairs])
        scores, rows = sort_by_score(scores, candidates)
        path = self.run.ranking(row, f"{split.name}{RERANK_SUFFIX}")
        write_ranking(path, row, split.queries.ids, self.data.collection.documents.ids, scores, rows)

    def rank_by_indexes(self, row: str, snapshot: Snapshot) -> None:
        """Rank and measure the same queries with each of `final_evaluation.indexes`; each index has a row of
        its own."""
        indexes = self.recipe.final_evaluation.indexes
        queries = self._queries(snapshot) if indexes else np.empty(0)
        for index in indexes:
            start, name = time.perf_counter(), f"{row}+{index}"
            search, own = snapshot.static_index(index, self.recipe.seed), self._own_documents
            hits = self.recipe.final_evaluation.hits
            scores, rows = search_arrays(search, queries, hits + (own is not None))
            self._write_row(name, *((scores, rows) if own is None else leave_out(own, scores, rows, hits)))
            self.measure(name, time.perf_counter() - start, **self.size(snapshot, index))

    def size(self, snapshot: Snapshot, index: str = FLAT) -> dict[str, int]:
        """The column of index sizes, where a table has rows by index."""
        has_indexes = bool(self.recipe.final_evaluation.indexes)
        return {BYTES: snapshot.bytes_per_document(index, self.recipe.seed)} if has_indexes else {}

    def index_rows(self, row: str) -> list[dict[str, Any]]:
        """The measures of `row` as each of `final_evaluation.indexes` ranks, which exist."""
        rows = [self.read_row(f"{row}+{index}") for index in self.recipe.final_evaluation.indexes]
        return [record for record in rows if record is not None]

    def rank_training_queries(self, stage: str, checkpoint: Checkpoint) -> None:
        """Record the ranks of the training queries' positives under the last stage's result, once.

        The ranks, (Q,) int32 and 0 beyond TRAINING_RANKS_CUTOFF, are an array file; each refresh writes one
        of its checkpoint. If documents are evaluated in another precision than they were mined in, the record
        holds both and no file is written: rounding alone would change ranks.
        """
        records = self.world.on_main(lambda: [one["event"] for one in read_json_lines(self.run.metrics)])
        if "training_queries" in records:
            return  # the run was stopped just before its end
        snapshot = self._snapshot(checkpoint)
        mined = self.world.on_main(
            lambda: resolve_precision(self.recipe.encoding.precision, self.world.device)
        )
        if mined == snapshot.precision:
            anchor_set = replace(snapshot.anchor_set("query"), share=(self.world.rank, self.world.size))
            rows = snapshot.search("query", anchor_set.anchors, "document", TRAINING_RANKS_CUTOFF)[1]
            known = is_known_positive(anchor_set.known_positives, anchor_set.anchors, rows)
            ranks = self.world.gather_rows(positive_ranks(known))
            self.world.on_main(lambda: save_array(self.run.training_ranks, ranks))
        about = {"stage": stage, "step": self.recipe.stages[stage].steps, "weights": checkpoint.weights}
        precisions = {"mined": mined, "evaluated": snapshot.precision}
        RunLog(self.run, self.world.is_main).metric("training_queries", **about, precisions=precisions)

    def measure(self, row: str, seconds: float | None, **more: Any) -> dict[str, Any]:
        """Measure the rankings of `row` and record the result; their files suffice to repeat it.

        `seconds` is None if another row has recorded them; `more` is added to the record.
        """

        def measure() -> dict[str, Any]:
            values: dict[str, float] = {}
            for split in self._splits:
                values |= self._values(row, split)
            record = {"row": row, **values, "test seconds": seconds and round(seconds, 1), **more}
            write_json(self.run.run_files / f"{row}.json", record)
            return record

        return self.world.on_main(measure)

    def _values(self, row: str, split: Split) -> dict[str, float]:
        """The measures of one split, by column. BM25 neither reranks nor ranks queries."""
        test, name = self.recipe.final_evaluation, split.name
        rankings = [(name, self.run.ranking(row, name), test.measures_of(name))]
        reranked = f"{name}{RERANK_SUFFIX}"
        if name in test.reranked and (path := self.run.ranking(row, reranked)).exists():
            rankings.append((reranked, path, test.rerank_measures_of(name)))
        values: dict[str, float] = {}
        for column, path, measures in rankings:
            run = read_run(path)
            if split.is_judged:
                measured = evaluate(read_qrels(self.run.qrels(name)), run, measures)
            else:
                measured = measure_by_answers(run, split.queries, self.data.collection.documents, measures)
            values |= {test.column(column, measure): value for measure, value in measured.items()}
        query_measures = test.query_measures_of(name)
        if query_measures and (ranking := self.run.ranking(row, f"{name}{QUERIES_SUFFIX}")).exists():
            judged = reversed_qrels(read_qrels(self.run.qrels(name)), split.qrels.threshold)
            of_queries = evaluate(judged, read_run(ranking), query_measures)
            values |= {test.column(name, f"{QUERIES}{m}"): value for m, value in of_queries.items()}
        return values

    def hybrid_row(self, row: str) -> dict[str, Any]:
        """The measures of the hybrid of BM25 and `row`, fused with equal weights as Pyserini fuses, made
        unless they exist.

        The rankings of both rows must exist. Called by all processes; the main process fuses.
        """
        if (recorded := self.read_row(HYBRID)) is not None:
            return recorded
        start = time.perf_counter()
        hits = self.recipe.final_evaluation.hits

        def fused(split: str) -> Rows:
            """The first `hits` documents, block of queries by block."""
            from pyserini_ance.pyserini_bridge.searchers import fuse

            rankings = [read_run(self.run.ranking(one, split)) for one in (BM25, row)]
            queries = dict.fromkeys(query for ranking in rankings for query in ranking)
            for block in batched(queries, QUERIES_PER_BLOCK):
                parts = [{query: one[query] for query in block if query in one} for one in rankings]
                for query, documents in fuse(parts, METHOD, pool=hits, hits=hits).items():
                    yield from ((query, document, score) for document, score in documents.items())

        for split in self.recipe.final_evaluation.split:
            self.world.on_main(partial(write_run, self.run.ranking(HYBRID, split), fused(split), HYBRID))
        return self.measure(HYBRID, time.perf_counter() - start)

    def _snapshot(self, checkpoint: Checkpoint) -> Snapshot:
        exact = self.recipe.exact_encoding
        return Snapshot.of(checkpoint, self.data, self.recipe, self.run, self.world, exact)

    @property
    def _splits(self) -> list[Split]:
        return [self.data.collection.split(name) for name in self.recipe.final_evaluation.split]

    def _queries(self, snapshot: Snapshot) -> np.ndarray:
        """Vectors of all test queries, split after split: (Q, D) float32."""
        rows = ((split.name, np.arange(len(split.queries))) for split in self._splits)
        return np.concatenate([snapshot.encode_queries(name, own, precision="fp32") for name, own in rows])

    @property
    def _own_documents(self) -> np.ndarray | None:
        """(Q,) the document that the ranking of each test query leaves out; None: none does."""
        own = [self.data.collection.own_documents(split) for split in self._splits]
        return np.concatenate([one for one in own if one is not None]) if own[0] is not None else None

    def _by_split(self, of_queries: np.ndarray) -> list[np.ndarray]:
        return np.split(of_queries, np.cumsum([len(split.queries) for split in self._splits])[:-1])

    def _write_row(self, row: str, scores: np.ndarray, rows: np.ndarray) -> None:
        ids = self.data.collection.documents.ids
        for split, *hits in zip(self._splits, self._by_split(scores), self._by_split(rows), strict=True):
            path = self.run.ranking(row, split.name)
            self.world.on_main(partial(write_ranking, path, row, split.queries.ids, ids, *hits))


def write_ranking(
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


def sort_by_score(scores: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort scores (Q, k) and rows (Q, k) by falling score, ties by rising row, as a search does; PADDING
    comes last."""
    order = np.lexsort((rows, -np.where(rows == PADDING, -np.inf, scores)), axis=-1)
    return np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)


def fusion_command(run: RunDir, splits: Sequence[str], hits: int, row: str = "") -> str:
    """Pyserini's shell command, one for each test split, that makes the ranking of the row `hybrid`, or the
    same of another row than the last stage's."""
    commands, name = [], f"run.{HYBRID}-{row}" if row else f"run.{HYBRID}"
    for split in splits:
        output = run.folder / (f"{name}.txt" if len(splits) == 1 else f"{name}.{split}.txt")
        ranking = run.ranking(row, split) if row else run.final_run(split)
        files = ["--runs", run.ranking(BM25, split), ranking, "--output", output]
        options = ["--method", METHOD, *files, "--depth", hits, "--k", hits]
        commands.append(shlex.join(map(str, [python_program(), "-m", "pyserini.fusion", *options])))
    return "\n".join(commands)


def reversed_qrels(qrels: Qrels, threshold: int) -> Qrels:
    """The judged queries of each document that is relevant to one of them, that is of grade `threshold` or
    above."""
    judged: Qrels = {}
    for query, grades in qrels.items():
        for document, grade in grades.items():
            judged.setdefault(document, {})[query] = grade
    return {document: grades for document, grades in judged.items() if max(grades.values()) >= threshold}
