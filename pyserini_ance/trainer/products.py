"""The products made from a stage's checkpoints: tables of negatives and dev scores, each with its queue."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyserini_ance.data.scored_pairs import ScoredPairs
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.source import warning_of_random_negatives
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.refresh_settings import ProductSettings
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs import generation as published
from pyserini_ance.runs.generation import Generation, PreviousStage, ProductKind, RefreshRequest, TableKey
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.executors import RefreshExecutor
from pyserini_ance.trainer.refresh import AdoptionLog, RefreshQueue

log = logging.getLogger(__name__)


@dataclass(eq=False)
class NegativeTables(RefreshQueue[Generation]):
    """The tables of negatives that steps draw from; `identity` holds the hashes of the data.

    `tables` are the adopted ones by source, `table_steps` the steps of the checkpoints that they were mined
    with. `teacher_scores` are the adopted scores of each term with a teacher. `adopted_step` is the step
    before which the last tables were adopted, `newest` the step of the checkpoint behind the newest table
    that is mined again at each refresh; None if there is none.
    """

    kind, event, is_score = "tables", "adopt", False

    identity: Mapping[str, str]
    previous_stage: PreviousStage | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stage.uses_previous_tables:
            assert self.previous_stage is not None
            self.identity = {**self.identity, published.PREVIOUS_TABLES: self.previous_stage.digest()}
        self.tables: dict[TableKey, NegativeTable] = {}
        self.table_steps: dict[TableKey, int] = {}
        self.teacher_scores: dict[str, ScoredPairs] = {}
        self.adopted_step = 0
        self.newest: int | None = None

    def is_due(self, step: int) -> bool:
        return bool(published.mined_sources(self.stage)) if step == 0 else self.stage.refresh_is_due(step)

    def request(self, step: int, weights: str) -> RefreshRequest:
        if step > 0 or not self.stage.mines_with_previous:
            return super().request(step, weights)
        previous = self.previous_stage
        assert previous is not None
        return RefreshRequest(self.kind, self.stage_name, step, previous.weights, checkpoint=previous.result)

    def adopt(self, request: RefreshRequest, step: int, waited_seconds: float) -> Generation:
        """Raises on all processes if one of them could not open and verify the tables."""
        folder = self.run.generation(self.stage_name, request.step)
        error, generation = None, None
        try:
            generation = published.open_generation(folder, {"weights": request.weights, **self.identity})
        except (OSError, RuntimeError) as problem:
            error = problem
        self.world.barrier()  # reading may take longer on one process than on another
        if not self.world.all_agree(error is None) or generation is None:
            raise error or RuntimeError(f"{folder} could not be opened by another process")
        adoption = self._record(step, request, folder=str(folder.relative_to(self.run.folder)))
        self._use(generation, step)
        about = {"age_steps": step - request.step, "waited_seconds": round(waited_seconds, 3)}
        self.log.metric("generation", **adoption, **about, **generation.report)
        for key, table in generation.tables.items() if self.world.is_main else ():
            num_short = generation.report["tables"][published.table_name(key)]["short_queries"]
            if warning := warning_of_random_negatives(table, num_short):
                log.warning("stage %s, step %d: %s", self.stage_name, request.step, warning)
        message = "stage %s, step %d: negatives of step %d; waited %.1f s"
        log.debug(message, self.stage_name, step, request.step, waited_seconds)
        return generation

    def restore(self, decisions: Sequence[dict[str, Any]]) -> None:
        """Open the tables in use after these adoptions: static ones of the first, others of the last."""
        for decision in published.in_use(self.stage, decisions):
            made_from = {"weights": decision["weights"], **self.identity}
            self._use(
                published.open_generation(self.run.folder / decision["folder"], made_from), decision["step"]
            )

    def _use(self, generation: Generation, step: int) -> None:
        self.tables.update(generation.tables)
        self.table_steps.update(dict.fromkeys(generation.tables, generation.step))
        self.teacher_scores.update(generation.teacher_scores)
        self.adopted_step = step
        dynamic = published.mined_sources(self.stage, dynamic_only=True).keys() & self.table_steps.keys()
        self.newest = max((self.table_steps[key] for key in dynamic), default=None)


class DevScores(RefreshQueue[float]):
    kind, event, is_score = "dev", "evaluate", True

    def is_due(self, step: int) -> bool:
        return self.stage.evaluation_is_due(step)

    def adopt(self, request: RefreshRequest, step: int, waited_seconds: float) -> float:
        assert self.stage.evaluate is not None
        measure = self.stage.evaluate.measure
        path = self.run.evaluation(self.stage_name, request.step)
        evaluation = self.world.on_main(lambda: published.open_evaluation(path, request.weights))
        value = {key: evaluation[key] for key in ("value", "splits") if key in evaluation}
        adoption = self._record(step, request, **value)
        self.log.metric("dev", **adoption, measure=measure, **value, parts=evaluation["seconds"])
        splits = ", ".join(f"{split} {score:.4f}" for split, score in evaluation.get("splits", {}).items())
        shown = f"{evaluation['value']:.4f}" + (f" ({splits})" if splits else "")
        log.info("stage %s, step %d: dev %s %s", self.stage_name, request.step, measure, shown)
        return evaluation["value"]


QUEUES: tuple[type[RefreshQueue], ...] = (NegativeTables, DevScores)


def queues_of(
    run: RunDir,
    name: str,
    stage: Stage,
    identity: Mapping[str, str],
    world: World,
    executor_of: Callable[[ProductSettings], RefreshExecutor],
    adoption_logs: Mapping[ProductKind, AdoptionLog],
    previous_stage: PreviousStage | None = None,
) -> tuple[NegativeTables] | tuple[NegativeTables, DevScores]:
    """The queues of one stage: its tables of negatives, and its dev scores, if it is evaluated.

    `executor_of` chooses who makes a product; `identity` holds the hashes of the data; `previous_stage` is
    given if the stage uses the result of the previous one.
    """
    refresh, evaluate = stage.effective_refresh, stage.effective_evaluate
    log_of_tables, log_of_dev = (adoption_logs.get(kind, AdoptionLog()) for kind in ("tables", "dev"))
    negatives = NegativeTables(
        run, name, stage, world, refresh, executor_of(refresh), log_of_tables, identity, previous_stage
    )
    if evaluate is None:
        return (negatives,)
    return negatives, DevScores(run, name, stage, world, evaluate, executor_of(evaluate), log_of_dev)
