"""The refresher: make the tables of negatives and the dev scores that training requests of a checkpoint.

Each new table has a report: candidate counts, ranks of the positives, score margins, turnover.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.checkpoint_vectors import vectors_folder
from pyserini_ance.negatives.positives import find_positives
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext
from pyserini_ance.negatives.table import NegativeTable, promoted_in
from pyserini_ance.negatives.teachers.base import TeacherContext, TeacherScores, score_tables
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.refresh_settings import Refresh
from pyserini_ance.refresher.dev_evaluation import evaluate_on_dev
from pyserini_ance.refresher.mined_tables import mine_table
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.generation import (
    PREVIOUS_TABLES,
    PRODUCT_NAMES,
    PreviousStage,
    ProductKind,
    RefreshRequest,
    TableKey,
    mined_sources,
    newest_generation_before,
    open_generation,
    publish_evaluation,
    publish_generation,
    table_name,
)
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import is_complete, leased


class CheckpointRemoved(FileNotFoundError):
    """The checkpoint of a request was removed before its product was made.

    Raised on all processes together.
    """


class Refresher:
    """Makes products of one run's checkpoints, in the training processes (sync) or in a refresher process
    (async).

    Every process of the world calls `make`. `report` is called with what the refresher is working on.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: PreparedData,
        run: RunDir,
        device: str,
        world: World,
        report: Callable[[str], None] = lambda task: None,
    ):
        self.recipe, self.data, self.run = recipe, data, run
        self.device, self.world, self.report = device, world, report
        self._snapshot: Snapshot | None = None
        self._make: dict[ProductKind, Callable[[RefreshRequest, Snapshot, ExitStack], None]] = {
            "tables": self._mine,
            "dev": self._evaluate,
        }

    def make(self, request: RefreshRequest) -> None:
        """Publish the requested product unless it is already published.

        Raises CheckpointRemoved if its checkpoint was removed.
        """
        if self.world.on_main(lambda: request.is_done(self.run)):
            return
        with ExitStack() as leases:
            if not self.world.on_main(lambda: self._lease_checkpoint(leases, request)):
                raise CheckpointRemoved(
                    f"{request.folder(self.run)} was removed before its "
                    f"{PRODUCT_NAMES[request.kind]} was made"
                )
            snapshot = self._snapshot_of(request)
            self._lease_vectors(leases, request, snapshot)
            try:
                self._make[request.kind](request, snapshot, leases)
            finally:
                snapshot.free_device()  # a training step may need the memory

    def _mine(self, request: RefreshRequest, snapshot: Snapshot, leases: ExitStack) -> None:
        stage = self.recipe.stages[request.stage]
        previous_stage: PreviousStage | None = None
        previous_tables: dict[TableKey, NegativeTable] = {}
        if stage.uses_previous_tables:
            previous_stage = PreviousStage.of(self.recipe, self.run, request.stage, self.world)
            previous_tables = previous_stage.tables(self.data.identity)
        compared = self._tables_before(request, leases) or previous_tables
        chunk = self._query_chunk(request.step, stage.effective_refresh)
        tables: dict[TableKey, NegativeTable] = {}
        reports: dict[str, dict[str, Any]] = {}
        with snapshot.timed("filter"):
            positives = find_positives(snapshot, stage.effective_refresh.positives_top_k)
        for key, source in mined_sources(stage, dynamic_only=request.step > 0).items():
            with snapshot.timed("filter"):
                of_chunk, anchor = chunk if source.is_dynamic else None, stage.terms[key[0]].anchor
                anchor_set = snapshot.anchor_set(anchor, of_chunk).with_positives(positives)
                context = self._mining_context(request, key, previous_tables)
                # Not of static tables: later minings find other positives, which replace these.
                promoted = positives if source.is_dynamic else None
                table, report = mine_table(source, snapshot, anchor_set, context, compared.get(key), promoted)
                short = source.check(table, self.data.collection, self.data.split)
                tables[key], reports[table_name(key)] = table, {"short_queries": short, **report}
        teacher_scores, teacher_reports = self._teach(request, tables, snapshot, chunk)

        def publish() -> None:
            origin = {"stage": request.stage, "step": request.step, "weights": request.weights}
            made_from = {**origin, **self.data.identity}
            if previous_stage:
                made_from[PREVIOUS_TABLES] = previous_stage.digest()
            folder = self.run.generation(request.stage, request.step)
            publish_generation(
                folder, tables, reports, snapshot.seconds, made_from, teacher_scores, teacher_reports
            )

        self.world.on_main(publish)
        snapshot.forget_training_queries()

    def _teach(
        self,
        request: RefreshRequest,
        tables: Mapping[TableKey, NegativeTable],
        snapshot: Snapshot,
        chunk: np.ndarray | None,
    ) -> tuple[dict[str, TeacherScores], dict[str, dict[str, Any]]]:
        """Return each teacher's scores of what its term draws from after this refresh, and a report on them.

        Static tables were mined before the first step; their candidates are scored again, because a teacher
        may follow the student.
        """
        stage = self.recipe.stages[request.stage]
        if not stage.teachers:
            return {}, {}
        in_use = dict(tables)
        if request.step > 0 and mined_sources(stage).keys() - tables.keys():
            first = open_generation(self.run.generation(request.stage, 0), self.data.identity)
            in_use = {**first.tables, **tables}
        pairs = promoted_in(in_use.values())
        all_scores, reports = {}, {}
        for name, teacher in stage.teachers.items():
            start = time.perf_counter()
            of_term = [in_use[key] for key in sorted(in_use) if key[0] == stage.drawing_term(name)]
            anchor_set = snapshot.anchor_set(stage.terms[name].anchor, chunk).with_positives(pairs)
            context = TeacherContext(self.recipe, snapshot)
            all_scores[name] = score_tables(teacher, of_term, anchor_set, context)
            scores = all_scores[name].scores
            unscored = int(np.isnan(scores).sum())
            reports[name] = {
                "kind": teacher.kind,
                "pairs": len(scores) - unscored,
                "unscored_pairs": unscored,
                **({"new_pairs": context.new_pairs.total()} if context.new_pairs else {}),
                "origins": context.origins,
            }
            seconds = snapshot.seconds.get("teacher", 0.0) + time.perf_counter() - start
            snapshot.seconds["teacher"] = seconds
        return all_scores, reports

    def _evaluate(self, request: RefreshRequest, snapshot: Snapshot, leases: ExitStack) -> None:
        settings = self.recipe.stages[request.stage].evaluate
        assert settings is not None, "only stages with `evaluate` request dev scores"
        values = evaluate_on_dev(snapshot, settings, self.recipe.seed)
        seconds = {task: round(seconds, 3) for task, seconds in snapshot.seconds.items()}
        path = self.run.evaluation(request.stage, request.step)
        self.world.on_main(lambda: publish_evaluation(path, values, request.weights, seconds))

    def _snapshot_of(self, request: RefreshRequest) -> Snapshot:
        """Return the last snapshot if it is of the same checkpoint, with its vectors and rankings, else a new
        one."""
        folder = request.folder(self.run)
        checkpoint = Checkpoint(folder, *self.world.on_main(lambda: Checkpoint.open(folder).hashes))
        if checkpoint.weights != request.weights:
            raise RuntimeError(
                f"{checkpoint.folder} holds weights {checkpoint.weights[:12]}, but the request is for "
                f"{request.weights[:12]}"
            )
        if self._snapshot is None or self._snapshot.weights != checkpoint.weights:
            self._snapshot = Snapshot(
                checkpoint.encoder,
                checkpoint.weights,
                self.data,
                self.recipe.encoding,
                self.run.scratch,
                self.device,
                self.world,
                checkpoint.document_weights,
                self.recipe,
                self.run.teachers,
            )
        self._snapshot.seconds.clear()
        return self._snapshot

    def _query_chunk(self, step: int, refresh: Refresh) -> np.ndarray | None:
        """Return the rows of the training queries to mine for, an equal share of each split; None: all."""
        if refresh.query_chunks == 1:
            return None
        queries = np.arange(len(self.data.split.queries))
        splits = [queries[rows] for rows in self.data.split_rows]
        return np.concatenate([split[refresh.chunk(step, len(split))] for split in splits])

    def _mining_context(
        self, request: RefreshRequest, key: TableKey, previous_tables: Mapping[TableKey, NegativeTable]
    ) -> MiningContext:
        term, position = key
        of_term = tuple(previous_tables[key] for key in sorted(previous_tables) if key[0] == term)
        stage_index = list(self.recipe.stages).index(request.stage)
        term_index = list(self.recipe.stages[request.stage].terms).index(term)
        generation = self.run.generation(request.stage, request.step).name
        random_key = (self.recipe.seed, stage_index, request.step, term_index, position)
        return MiningContext(generation, of_term, random_key)

    def _tables_before(self, request: RefreshRequest, leases: ExitStack) -> dict[TableKey, NegativeTable]:
        """Return the tables of the last generation, to compare; none if training is removing them."""
        name = self.world.on_main(
            lambda: str(newest_generation_before(self.run, request.stage, request.step) or "")
        )
        if not name or not self.world.on_main(lambda: self._lease_tables(leases, Path(name))):
            return {}
        return open_generation(Path(name), self.data.identity).tables

    def _lease_checkpoint(self, leases: ExitStack, request: RefreshRequest) -> bool:
        """Protect the checkpoint from removal. False if it was already removed."""
        folder = request.folder(self.run)
        self.report(f"{request.kind} of {folder.name}")
        if is_complete(folder):
            leases.enter_context(leased(folder))
        return is_complete(folder)

    def _lease_vectors(self, leases: ExitStack, request: RefreshRequest, snapshot: Snapshot) -> None:
        """Protect the vectors, which training removes if it cancels the request in the meantime."""
        folder = vectors_folder(self.run.scratch, snapshot.document_weights, snapshot.precision)

        def lease() -> None:
            folder.parent.mkdir(exist_ok=True)
            leases.enter_context(leased(folder))

        self.world.on_main(lease)

    def _lease_tables(self, leases: ExitStack, folder: Path) -> bool:
        leases.enter_context(leased(folder))
        return is_complete(folder)
