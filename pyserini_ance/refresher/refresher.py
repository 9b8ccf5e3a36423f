"""The refresher: make the tables of negatives and the dev scores that training requests of a checkpoint.

Each new table has a report: candidate counts, ranks of the positives, score margins, turnover.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.data.scored_pairs import ScoredPairs
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.mined import find_positives
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext
from pyserini_ance.negatives.table import NegativeTable, promoted_in
from pyserini_ance.negatives.teachers.base import TeacherContext, score_tables
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.refresher.corrected_vectors import correct_older
from pyserini_ance.refresher.dev_evaluation import evaluate_on_dev
from pyserini_ance.refresher.mined_tables import mine_table
from pyserini_ance.runs import generation as published
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.generation import PRODUCT_NAMES, PreviousStage, RefreshRequest, TableKey, table_name
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
        world: World,
        report: Callable[[str], None] = lambda task: None,
    ):
        self.recipe, self.data, self.run = recipe, data, run
        self.world, self.report = world, report
        self._snapshot: Snapshot | None = None

    def make(self, request: RefreshRequest) -> None:
        """Publish the requested product unless it is already published. Raises CheckpointRemoved if its
        checkpoint was removed."""
        if self.world.on_main(lambda: request.is_done(self.run)):
            return
        folder, name = request.folder(self.run), PRODUCT_NAMES[request.kind]
        self.world.on_main(lambda: self.report(f"{request.kind} of {folder.name}"))
        with ExitStack() as leases:
            if not self._leased(leases, folder):
                raise CheckpointRemoved(f"{folder} was removed before its {name} was made")
            snapshot = self._snapshot_of(request, folder)
            # Training removes the vectors if it cancels the request in the meantime.
            self._leased(leases, snapshot.vectors_folder)
            try:
                if request.kind == "tables":
                    self._mine(request, snapshot, leases)
                else:
                    self._evaluate(request, snapshot)
            finally:
                snapshot.free_device()  # a training step may need the memory

    def _leased(self, leases: ExitStack, folder: Path) -> bool:
        """Protect a folder from removal until `leases` close; whether it is there and complete."""

        def lease() -> bool:
            folder.parent.mkdir(exist_ok=True)
            leases.enter_context(leased(folder))
            return is_complete(folder)

        return self.world.on_main(lease)

    def _mine(self, request: RefreshRequest, snapshot: Snapshot, leases: ExitStack) -> None:
        stage = self.recipe.stages[request.stage]
        previous_stage: PreviousStage | None = None
        previous_tables: dict[TableKey, NegativeTable] = {}
        if stage.uses_previous_tables:
            previous_stage = PreviousStage.of(self.recipe, self.run, request.stage, self.world)
            previous_tables = previous_stage.tables(self.data.identity)
        compared = self._tables_before(request, leases) or previous_tables
        refresh, chunk = stage.effective_refresh, None  # the training queries to mine for; None: all
        if refresh.query_chunks > 1:  # an equal share of each split
            splits = [np.arange(rows.start, rows.stop) for rows in self.data.split_rows]
            chunk = np.concatenate([split[refresh.chunk(request.step, len(split))] for split in splits])
        generation = self.run.generation(request.stage, request.step)
        key_of_stage = self.recipe.seed, list(self.recipe.stages).index(request.stage), request.step
        encoded = correct_older(request, snapshot, self.recipe, self.run, partial(self._leased, leases))
        tables: dict[TableKey, NegativeTable] = {}
        reports: dict[str, dict[str, Any]] = {}
        with snapshot.timed("filter"):
            positives = find_positives(snapshot, refresh.positives_top_k)
        for key, source in published.mined_sources(stage, dynamic_only=request.step > 0).items():
            with snapshot.timed("filter"):
                (term, position), part = key, chunk if source.is_dynamic else None
                anchor_set = snapshot.anchor_set(stage.terms[term].anchor, part).with_positives(positives)
                before = tuple(previous_tables[one] for one in sorted(previous_tables) if one[0] == term)
                random_key = (*key_of_stage, list(stage.terms).index(term), position)
                context = MiningContext(generation.name, before, random_key)
                # Not of static tables: later minings find other positives, which replace these.
                promoted = positives if source.is_dynamic else None
                table, report = mine_table(source, snapshot, anchor_set, context, compared.get(key), promoted)
                short = source.num_short(table)
                tables[key], reports[table_name(key)] = table, {"short_queries": short, **report}
        teacher_scores, teacher_reports = self._teach(request, tables, snapshot, chunk)
        if not encoded and stage.trainable == "both" and "document_vectors" in vars(snapshot):
            encoded = {"documents": len(self.data.documents)}

        def publish() -> None:
            origin = {"stage": request.stage, "step": request.step, "weights": request.weights}
            made_from = {**origin, **self.data.identity}
            if previous_stage:
                made_from[published.PREVIOUS_TABLES] = previous_stage.digest()
            if refresh.encode:
                made_from[published.ENCODED] = encoded
            seconds = snapshot.seconds
            published.publish_generation(
                generation, tables, reports, seconds, made_from, teacher_scores, teacher_reports, encoded
            )

        self.world.on_main(publish)
        snapshot.forget_training_queries()  # only mining needs them

    def _teach(
        self,
        request: RefreshRequest,
        tables: Mapping[TableKey, NegativeTable],
        snapshot: Snapshot,
        chunk: np.ndarray | None,
    ) -> tuple[dict[str, ScoredPairs], dict[str, dict[str, Any]]]:
        """Return each teacher's scores of what its term draws from after this refresh, and a report on them.

        Static tables were mined before the first step; their candidates are scored again, because a teacher
        may follow the student.
        """
        stage = self.recipe.stages[request.stage]
        teachers = {
            name: each for name, each in stage.teachers.items() if stage.terms[name].distilled_side is None
        }
        if not teachers:
            return {}, {}
        in_use = dict(tables)
        if request.step > 0 and published.mined_sources(stage).keys() - tables.keys():
            first = published.open_generation(self.run.generation(request.stage, 0), self.data.identity)
            in_use = {**first.tables, **tables}
        pairs = promoted_in(in_use.values())
        all_scores, reports = {}, {}
        for name, teacher in teachers.items():
            of_term = [in_use[key] for key in sorted(in_use) if key[0] == stage.drawing_term(name)]
            anchor_set = snapshot.anchor_set(stage.terms[name].anchor, chunk).with_positives(pairs)
            context = TeacherContext(snapshot)
            with snapshot.timed("teacher"):
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
        return all_scores, reports

    def _evaluate(self, request: RefreshRequest, snapshot: Snapshot) -> None:
        stage = self.recipe.stages[request.stage]
        assert stage.evaluate is not None, "only stages with `evaluate` request dev scores"
        from_all = stage.encodes_all_documents(request.step)
        values = evaluate_on_dev(snapshot, stage.evaluate, self.recipe.seed, from_all)
        seconds = {task: round(seconds, 3) for task, seconds in snapshot.seconds.items()}
        path = self.run.evaluation(request.stage, request.step)
        self.world.on_main(lambda: published.publish_evaluation(path, values, request.weights, seconds))

    def _snapshot_of(self, request: RefreshRequest, folder: Path) -> Snapshot:
        """Return the last snapshot if it is of the same checkpoint, with its vectors and rankings, else a new
        one."""
        checkpoint = Checkpoint(folder, *self.world.on_main(lambda: Checkpoint.open(folder).hashes))
        if checkpoint.weights != request.weights:
            raise RuntimeError(
                f"{checkpoint.folder} holds weights {checkpoint.weights[:12]}, but the request is for "
                f"{request.weights[:12]}"
            )
        if self._snapshot is None or self._snapshot.weights != checkpoint.weights:
            self._snapshot = Snapshot.of(checkpoint, self.data, self.recipe, self.run, self.world)
        self._snapshot.seconds.clear()
        return self._snapshot

    def _tables_before(self, request: RefreshRequest, leases: ExitStack) -> dict[TableKey, NegativeTable]:
        """Return the tables of the last generation, to compare; none if training is removing them."""
        name = self.world.on_main(
            lambda: str(published.newest_generation_before(self.run, request.stage, request.step) or "")
        )
        if not name or not self._leased(leases, Path(name)):
            return {}
        return published.open_generation(Path(name), self.data.identity).tables
