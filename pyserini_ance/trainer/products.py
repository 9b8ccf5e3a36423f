"""The products made from a stage's checkpoints: tables of negatives and dev scores.

When each is due, and how it is adopted.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.negatives.teachers.base import TeacherScores
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.generation import (
    PREVIOUS_TABLES,
    Generation,
    PreviousStage,
    ProductKind,
    RefreshRequest,
    TableKey,
    in_use,
    mined_sources,
    open_evaluation,
    open_generation,
)
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir

log = logging.getLogger(__name__)


class Product[T](ABC):
    """A kind of product of one stage's checkpoints.

    `event` names its adoptions in `decisions.jsonl`. `adopts_at_end`: whether a product that is pending at
    the end of the stage is still adopted. `newest_suffices`: whether a request that training does not wait
    for replaces older ones.
    """

    kind: ClassVar[ProductKind]
    event: ClassVar[str]
    adopts_at_end: ClassVar[bool]
    newest_suffices: ClassVar[bool]

    def __init__(self, run: RunDir, stage_name: str, stage: Stage, world: World):
        self.run, self.stage_name, self.stage, self.world = run, stage_name, stage, world
        self.log = RunLog(run, world.is_main)

    @abstractmethod
    def is_due(self, step: int) -> bool:
        """Whether the product is made from the checkpoint before step `step`."""

    def request(self, step: int, weights: str) -> RefreshRequest:
        """The request for the product of the checkpoint before step `step`, whose weights have this hash."""
        return RefreshRequest(self.kind, self.stage_name, step, weights)

    @abstractmethod
    def adopt(self, request: RefreshRequest, step: int, waited_seconds: float, is_decided: bool) -> T:
        """Open the product of a request that is done, adopt it before step `step`, and record that.

        The decision is not recorded again if it `is_decided`: if the run did so before an interruption.
        """

    def restore(self, decisions: Sequence[dict[str, Any]]) -> None:  # noqa: B027 (optional)
        """Restore what is in use after these adoptions, when a stage is resumed. Nothing by default."""

    def _record(self, step: int, request: RefreshRequest, is_decided: bool, **values: Any) -> dict[str, Any]:
        """Record the decision to adopt; return the fields that tell which adoption a metric belongs to."""
        adoption = {"stage": self.stage_name, "step": step, "checkpoint_step": request.step}
        if not is_decided:
            self.log.decide(self.event, **adoption, **values, weights=request.weights)
        return adoption


class NegativeTables(Product[Generation]):
    """The tables of negatives that steps draw from.

    `tables` are the adopted ones by source, `table_steps` the steps of the checkpoints that they were mined
    with. `teacher_scores` are the adopted scores of each term with a teacher. `adopted_step` is the step
    before which the last tables were adopted.
    """

    kind, event = "tables", "adopt"
    adopts_at_end = False  # no step is left to draw from them
    newest_suffices = False

    def __init__(
        self,
        run: RunDir,
        stage_name: str,
        stage: Stage,
        world: World,
        identity: Mapping[str, str],
        previous_stage: PreviousStage | None = None,
    ):
        super().__init__(run, stage_name, stage, world)
        self.previous_stage = previous_stage
        self.identity = dict(identity)
        if stage.uses_previous_tables:
            assert previous_stage is not None
            self.identity[PREVIOUS_TABLES] = previous_stage.digest()
        self.tables: dict[TableKey, NegativeTable] = {}
        self.table_steps: dict[TableKey, int] = {}
        self.teacher_scores: dict[str, TeacherScores] = {}
        self.adopted_step = 0

    def is_due(self, step: int) -> bool:
        return bool(mined_sources(self.stage)) if step == 0 else self.stage.refresh_is_due(step)

    def request(self, step: int, weights: str) -> RefreshRequest:
        if step == 0 and self.stage.mines_with_previous:
            assert self.previous_stage is not None
            previous = self.previous_stage
            return RefreshRequest(
                self.kind, self.stage_name, step, previous.weights, checkpoint=previous.result
            )
        return super().request(step, weights)

    def adopt(
        self, request: RefreshRequest, step: int, waited_seconds: float, is_decided: bool
    ) -> Generation:
        generation = self._open(request)
        folder = str(generation.folder.relative_to(self.run.folder))
        adoption = self._record(step, request, is_decided, folder=folder)
        self._use(generation)
        self.adopted_step = step
        age_steps, waited = step - request.step, round(waited_seconds, 3)
        self.log.metric(
            "generation", **adoption, age_steps=age_steps, waited_seconds=waited, **generation.report
        )
        log.info(
            "stage %s, step %d: negatives of step %d; waited %.1f s; %s",
            self.stage_name,
            step,
            request.step,
            waited_seconds,
            generation.describe(),
        )
        return generation

    def restore(self, decisions: Sequence[dict[str, Any]]) -> None:
        """Open the tables in use after these adoptions: static ones of the first, others of the last."""
        for decision in in_use(self.stage, decisions):
            made_from = {"weights": decision["weights"], **self.identity}
            self._use(open_generation(self.run.folder / decision["folder"], made_from))
            self.adopted_step = decision["step"]

    def shown_at(self, step: int) -> dict[str, str]:
        """For the progress of training: the generation in use by the step of its checkpoint, and its age.

        Nothing where all tables are static.
        """
        dynamic = mined_sources(self.stage, dynamic_only=True)
        newest = max((of for key, of in self.table_steps.items() if key in dynamic), default=None)
        return {} if newest is None else {"gen": str(newest), "age": str(step - newest)}

    def _open(self, request: RefreshRequest) -> Generation:
        """Open and verify the tables on every process. Raises on all of them if one process could not."""
        folder = self.run.generation(self.stage_name, request.step)
        error, generation = None, None
        try:
            generation = open_generation(folder, {"weights": request.weights, **self.identity})
        except (OSError, RuntimeError) as problem:
            error = problem
        self.world.barrier()  # reading may take longer on one process than on another
        if not self.world.all_agree(error is None) or generation is None:
            raise error or RuntimeError(f"{folder} could not be opened by another process")
        return generation

    def _use(self, generation: Generation) -> None:
        self.tables.update(generation.tables)
        self.table_steps.update(dict.fromkeys(generation.tables, generation.step))
        self.teacher_scores.update(generation.teacher_scores)


class DevScore(Product[float]):
    """The dev score of a checkpoint."""

    kind, event = "dev", "evaluate"
    adopts_at_end = True
    newest_suffices = True

    def is_due(self, step: int) -> bool:
        return self.stage.evaluation_is_due(step)

    def adopt(self, request: RefreshRequest, step: int, waited_seconds: float, is_decided: bool) -> float:
        assert self.stage.evaluate is not None
        measure, evaluation = self.stage.evaluate.measure, self.read(request)
        value = {key: evaluation[key] for key in ("value", "splits") if key in evaluation}
        adoption = self._record(step, request, is_decided, **value)
        self.log.metric("dev", **adoption, measure=measure, **value, parts=evaluation["seconds"])
        splits = ", ".join(f"{split} {score:.4f}" for split, score in evaluation.get("splits", {}).items())
        log.info(
            "stage %s, step %d: dev %s %.4f%s",
            self.stage_name,
            request.step,
            measure,
            evaluation["value"],
            f" ({splits})" if splits else "",
        )
        return evaluation["value"]

    def read(self, request: RefreshRequest) -> dict[str, Any]:
        """The evaluation of a request that is done: `value`, and `splits` when there are several."""
        path = self.run.evaluation(self.stage_name, request.step)
        return self.world.on_main(lambda: open_evaluation(path, request.weights))


PRODUCTS: tuple[type[Product], ...] = (NegativeTables, DevScore)
