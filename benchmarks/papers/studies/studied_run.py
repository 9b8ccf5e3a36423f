"""A run that is studied, and what a study finds: numbers, a picture, and notes."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.papers.studies.figures import Panel
from pyserini_ance.data.collection import Split
from pyserini_ance.data.known_positives import KnownPositives
from pyserini_ance.data.passages import Passages
from pyserini_ance.data.prepared import AnchorSet, PreparedData
from pyserini_ance.data.rankings import read_ranking
from pyserini_ance.distributed.world import World
from pyserini_ance.evaluation.tables import BM25, read_results
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PADDING, NegativeTable, is_in_line, select
from pyserini_ance.pipeline.preparation import prepare
from pyserini_ance.pyserini_bridge.vector_files import ABOUT, read_index
from pyserini_ance.random_streams import random_stream
from pyserini_ance.recipe.models import START_PREFIX, Recipe
from pyserini_ance.reports.run_history import RunHistory
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.generation import Generation, TableKey, open_generation
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir, step_of
from pyserini_ance.storage.files import read_json
from pyserini_ance.storage.publish import is_complete
from pyserini_ance.trainer.resume import data_digest
from pyserini_ance.vectors.encoding import ShardedVectors

Row = dict[str, Any]


class NotKept(ValueError):
    """The run lacks what a study reads; the message names the recipe key that keeps it, if one does."""


@dataclass(frozen=True)
class StudySettings:
    """What a study is made with: `queries` are sampled with `seed`; `top_k` is the depth of rankings; `query`
    is the id of the query that a picture shows: of the test query for t-sne, of a training query for
    negative-swing."""

    device: str = "cpu"
    queries: int = 200
    top_k: int = 100
    seed: int = 42
    query: str | None = None


class KeptCheckpoint(NamedTuple):
    """A checkpoint on disk: its step of all stages, its name and the hash of its weights."""

    position: int
    name: str
    weights: str


class Mined(NamedTuple):
    """A generation: its name, the step of all stages and the weights of the checkpoint that mined it, and the
    negatives (A, n) of the queries A in all its tables, with PADDING."""

    name: str
    position: int
    weights: str
    negatives: np.ndarray

    def of(self, place: int) -> list[int]:
        """The negatives of one of the queries."""
        return [row for row in self.negatives[place].tolist() if row != PADDING]


class StudiedQueries(NamedTuple):
    """The queries of the split `name`, with their positives, and BM25's ranking of them if there is one."""

    name: str
    anchor_set: AnchorSet
    bm25: Path | None

    @property
    def split(self) -> Split:
        return self.anchor_set.split

    @property
    def known_positives(self) -> KnownPositives:
        return self.anchor_set.known_positives


@dataclass(frozen=True)
class Findings:
    """All numbers of a study, as rows; the rows of the printed table (None: all); the picture's panels."""

    rows: Sequence[Row]
    panels: Sequence[Panel]
    summary: Sequence[Row] | None = None
    notes: Sequence[str] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """The rows and the notes, for a file: JSON has no NaN, so it is null."""
        rows = [{key: None if value != value else value for key, value in row.items()} for row in self.rows]
        return {"rows": rows, "notes": list(self.notes)}


class StudiedRun:
    """A run directory by name, with its history, its data and its models, each opened on first use."""

    def __init__(self, name: str, folder: Path, settings: StudySettings):
        self.name, self.run, self.settings = name, RunDir(folder), settings
        self.run.check()
        self.history = RunHistory(self.run)
        self.recipe: Recipe = self.history.recipe
        self.last_stage = list(self.recipe.stages)[-1]
        self.world = World(device=settings.device)
        self._snapshots: dict[str, Snapshot] = {}

    @cached_property
    def scratch(self) -> "tempfile.TemporaryDirectory[str]":
        """A folder for vectors, in the recipe's cache; it goes with the run."""
        self.recipe.cache.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(
            prefix="analysis-", dir=self.recipe.cache, ignore_cleanup_errors=True
        )

    @cached_property
    def data(self) -> PreparedData:
        """The data of the run; read again only if the cache of its recipe does not hold it."""
        data = prepare(self.recipe, self.world, data_digest(self.run))
        if (bm25 := self.run.bm25_negatives(data.train_split)).exists():
            data.training_rankings["bm25"] = bm25
        return data

    @cached_property
    def results(self) -> Row:
        """The run's `measures.json`. Raises FileNotFoundError if the run has not finished."""
        return read_results(self.run.folder)

    @cached_property
    def result(self) -> Snapshot:
        """The run's result over its data, with the vectors of `RUN/index`."""
        stage_ends = RunLog(self.run, writes=False).decisions("stage_end", self.last_stage)
        ended = [record["result"] for record in stage_ends]
        if not ended:
            raise NotKept(f"{self.run.folder}: stage {self.last_stage} has not ended; continue the run first")
        if not is_complete(self.run.checkpoints / ended[-1]):
            raise NotKept(f"{self.run.checkpoints / ended[-1]} was removed; train the run again")
        return self.snapshot(ended[-1])

    @cached_property
    def generations(self) -> list[tuple[str, Generation]]:
        """The adopted generations of negatives that are on disk, in order, each with its stage."""
        generations = []
        for record in self.history.of_event("generation"):
            folder = self.run.generation(record["stage"], record["checkpoint_step"])
            if is_complete(folder):
                generations.append((record["stage"], open_generation(folder, self.data.identity)))
        return generations

    @property
    def tables_in_use(self) -> Iterator[tuple[str, int, dict[TableKey, NegativeTable]]]:
        """After each adoption: the generation's name, its checkpoint's position, and all tables in use.

        Raises NotKept if the tables of a refresh were removed: what was new at another is then unknown.
        """
        adopted, kept = len(self.history.of_event("generation")), len(self.generations)
        if kept < adopted:
            raise NotKept(
                f"{self.run.folder} has kept the tables of {kept} of {adopted} refreshes; train it again"
            )
        in_use: dict[str, dict[TableKey, NegativeTable]] = {}
        for stage, generation in self.generations:
            in_use[stage] = {**in_use.get(stage, {}), **generation.tables}
            name, first = f"{stage}-{generation.step}", self.history.stages[stage][0]
            yield name, first + generation.step, in_use[stage]

    @cached_property
    def checkpoints(self) -> list[KeptCheckpoint]:
        """The checkpoints on disk in the order of training; of equal ones in a row the first."""
        order = ["initial", *(name for stage in self.recipe.stages for name in (START_PREFIX + stage, stage))]
        firsts = {"initial": 0, **{stage: first for stage, (first, _) in self.history.stages.items()}}
        found = []
        for path in self.run.checkpoints.glob("*-????????"):
            kind = path.name.rpartition("-")[0]
            if kind in order and is_complete(path):
                # Initial weights are at the first step of their stage.
                first = firsts.get(kind.removeprefix(START_PREFIX), self.history.steps)
                weights = Checkpoint.open(path, verify=False).weights
                kept = KeptCheckpoint(first + step_of(path.name), path.name, weights)
                found.append((kept.position, order.index(kind), kept))
        ordered = [kept for *_, kept in sorted(found)]
        return [next(alike) for _, alike in groupby(ordered, lambda kept: kept.weights)]

    @property
    def checkpoints_by_weights(self) -> dict[str, str]:
        """The names of the kept checkpoints by the hash of their weights."""
        return {kept.weights: kept.name for kept in self.checkpoints}

    def mined_for(self, anchors: np.ndarray) -> Iterator[Mined]:
        """The generations that were mined for all of the training queries `anchors` (A,), in order."""
        weights_of = [generation.weights for _, generation in self.generations]
        for weights, (name, position, tables) in zip(weights_of, self.tables_in_use, strict=True):
            own = [table for table in tables.values() if table.anchor_side == "query"]
            if all(np.isin(anchors, table.anchors).all() for table in own):
                found = [np.empty((len(anchors), 0), np.int32)]
                found += [table.candidates[table.positions(anchors)] for table in own]
                yield Mined(name, position, weights, np.concatenate(found, axis=1))

    def snapshot(self, checkpoint: str) -> Snapshot:
        """A checkpoint over the run's data. Its documents are encoded unless `RUN/index` has its vectors."""
        if checkpoint in self._snapshots:
            return self._snapshots[checkpoint]
        opened = Checkpoint.open(self.run.checkpoints / checkpoint, verify=False)
        precision = {"precision": self.recipe.final_evaluation.precision}
        encoding = self.recipe.encoding.model_copy(update=precision)
        snapshot = Snapshot.of(opened, self.data, self.recipe, self.run, self.world, encoding)
        snapshot.scratch = Path(self.scratch.name)
        self._snapshots[checkpoint] = snapshot
        about = self.run.index / ABOUT
        if about.exists() and read_json(about).get("weights") == opened.weights:
            vectors = ShardedVectors.split(read_index(self.run.index)[0], self.world)
            vars(snapshot)["document_vectors"] = vectors
        return snapshot

    def chosen_anchor(self, queries: StudiedQueries) -> int | None:
        """The row of `--query` in the queries; None without the option. Raises NotKept if there is no such
        query with a relevant document."""
        if (wanted := self.settings.query) is None:
            return None
        row = queries.split.queries.rows.get(wanted)
        if row is None or row not in queries.known_positives.anchors:
            raise NotKept(
                f"--query {wanted}: split {queries.name} has no such query with a relevant document"
            )
        return int(row)

    @cached_property
    def training_queries(self) -> StudiedQueries:
        bm25 = self.data.training_rankings.get("bm25")
        return StudiedQueries(self.data.train_split, self.data.anchor_sets["query"], bm25)

    @cached_property
    def test_queries(self) -> StudiedQueries:
        """Those of the first split of the final evaluation."""
        collection, name = self.data.collection, self.recipe.final_evaluation.split[0]
        anchor_set = AnchorSet.of(collection, collection.split(name), "query")
        bm25 = self.run.ranking(BM25, name)
        return StudiedQueries(name, anchor_set, bm25 if bm25.exists() else None)

    def sampled_anchors(self, purpose: str, queries: StudiedQueries | None = None) -> np.ndarray:
        """(Q,) int32, ascending: at most `settings.queries` of the queries (default: of training) that have a
        positive."""
        anchors = (queries or self.training_queries).known_positives.anchors
        return anchors[self.sample(purpose, len(anchors), self.settings.queries)]

    def sample(self, purpose: str, total: int, most: int) -> np.ndarray:
        """Ascending: `most` of the numbers below `total`, or all of them."""
        rng = random_stream(purpose, self.settings.seed)
        return np.sort(rng.choice(total, min(total, most), replace=False))

    def document_vectors(self, documents: np.ndarray) -> np.ndarray:
        """(R, D) the result's vectors of `documents` (R,); of several passages, their mean."""
        has_all = "document_vectors" in vars(self.result)
        return passage_means(*self.result.encode_documents(documents, from_all=has_all))

    def top_negatives(self, snapshot: Snapshot, queries: StudiedQueries, anchors: np.ndarray) -> np.ndarray:
        """(A, top_k) the documents that a model ranks first for the queries `anchors` (A,), without known
        positives, then PADDING."""
        anchor_set, k = queries.anchor_set, self.settings.top_k
        vectors, depth = snapshot.encode_queries(queries.name, anchors), k + anchor_set.most_excluded[1]
        hits = snapshot.rank(vectors, snapshot.document_vectors, depth, snapshot.passages)[1]
        return first_negatives(anchor_set, anchors, hits, k)

    def bm25_negatives(self, queries: StudiedQueries, anchors: np.ndarray) -> np.ndarray | None:
        """(A, top_k) BM25's first documents for the same queries; None if the run has no such ranking."""
        if queries.bm25 is None:
            return None
        anchor_set, k = queries.anchor_set, self.settings.top_k
        depth = k + anchor_set.most_excluded[1]
        ranked = read_ranking(queries.bm25, queries.split, self.data.collection, depth, anchors)
        return first_negatives(anchor_set, anchors, ranked.rows, k)


def passage_means(vectors: np.ndarray, passages: Passages | None) -> np.ndarray:
    """(R, D) the mean of each document's passages, which have the `vectors` (P, D); None: one each."""
    if passages is None:
        return vectors
    return np.add.reduceat(vectors, passages.offsets[:-1]) / np.diff(passages.offsets)[:, None]


def first_negatives(anchor_set: AnchorSet, anchors: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    """(A, k) the first k of `rows` (A, n) that may be negatives of their anchor, then PADDING."""
    kept = (rows != PADDING) & ~anchor_set.never_negative(anchors, rows)
    [chosen] = select(kept, k, (rows, np.int32(PADDING)))
    return np.pad(chosen, ((0, 0), (0, k - chosen.shape[1])), constant_values=PADDING)


def shared_share(rows: np.ndarray, among: np.ndarray) -> np.ndarray:
    """(A,) float64: the share of each line of `rows` (A, n) that is in its line of `among` (A, k).

    PADDING counts in neither; NaN for a line of `rows` without any.
    """
    with np.errstate(invalid="ignore"):
        return is_in_line(rows, among).sum(1) / (rows != PADDING).sum(1)
