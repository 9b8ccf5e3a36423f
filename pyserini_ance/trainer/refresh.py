"""When the products of a stage's checkpoints, tables of negatives and dev scores, are requested and adopted.

`RefreshSchedule` is the rule, a pure function; `RefreshQueue` follows it for one product with an executor.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pyserini_ance.distributed.world import World
from pyserini_ance.recipe import refresh_settings
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.generation import (
    PRODUCT_NAMES,
    Generation,
    PreviousStage,
    ProductKind,
    RefreshRequest,
)
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.executors import RefreshExecutor
from pyserini_ance.trainer.products import DevScore, NegativeTables, Product

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AdoptionLog:
    """Recorded adoptions to repeat: {step: steps of the checkpoints whose products were adopted before it}.

    A `resumed` run repeats its own records up to the last of them and is then free again. A `replay` repeats
    the records of another run to the end. `weights` are the hashes of the checkpoints' weights, by step.
    """

    adoptions: Mapping[int, Sequence[int]] = field(default_factory=dict)
    weights: Mapping[int, str] = field(default_factory=dict)
    mode: Literal["free", "resumed", "replay"] = "free"

    @classmethod
    def of(cls, records: Iterable[Mapping], mode: Literal["resumed", "replay"]) -> "AdoptionLog":
        """The log of decisions of one product and stage."""
        adoptions: dict[int, list[int]] = {}
        weights: dict[int, str] = {}
        for record in records:
            adoptions.setdefault(record["step"], []).append(record["checkpoint_step"])
            weights[record["checkpoint_step"]] = record["weights"]
        return cls(adoptions, weights, mode)

    def covers(self, step: int) -> bool:
        """Whether the log says what is adopted before step `step`."""
        return self.mode == "replay" or (self.mode == "resumed" and step <= max(self.adoptions, default=-1))

    def is_decided(self, step: int) -> bool:
        """Whether the run's own decisions, written before an interruption, hold the adoptions before step
        `step`."""
        return self.mode == "resumed" and self.covers(step)

    def uses(self, checkpoint: int) -> bool:
        """Whether the product of the checkpoint of this step is adopted in the log."""
        return any(checkpoint in checkpoints for checkpoints in self.adoptions.values())


@dataclass(frozen=True)
class Adoptions:
    """The products to adopt before a step: of `checkpoints` (steps, oldest first), all, or the newest that is
    done.

    `choose`: `all` waits for each; `newest_done` adopts nothing if none is done; `first_done` waits for one.
    """

    checkpoints: tuple[int, ...]
    choose: Literal["all", "newest_done", "first_done"] = "all"


@dataclass(frozen=True)
class RefreshSchedule:
    """The rule which checkpoint's product is adopted before which step of a stage of `steps` steps.

    `lag_steps` is the number of steps from the checkpoint to the adoption; None: adopted when ready, and no
    product is used for steps that are more than `staleness_steps` after its checkpoint. `adopts_at_end`:
    whether what is pending at the end of the stage is still adopted. `log` holds adoptions to repeat.
    """

    steps: int
    lag_steps: int | None
    staleness_steps: int | None = None
    adopts_at_end: bool = False
    log: AdoptionLog = AdoptionLog()

    @classmethod
    def of(
        cls,
        settings: refresh_settings.Product,
        steps: int,
        adopts_at_end: bool = False,
        adoption_log: AdoptionLog = AdoptionLog(),
    ) -> "RefreshSchedule":
        """The schedule of a recipe: `after_steps` (0 with `mode: sync`) or `when_ready`, after recorded
        adoptions."""
        return cls(steps, settings.lag_steps, settings.staleness_steps, adopts_at_end, adoption_log)

    def resumed(self, records: Sequence[Mapping]) -> "RefreshSchedule":
        """The schedule that repeats the run's own `records`, then goes on; a replay keeps its own log."""
        if not records or self.log.mode == "replay":
            return self
        return replace(self, log=AdoptionLog.of(records, "resumed"))

    @property
    def adopts_when_ready(self) -> bool:
        return self.lag_steps is None

    def adoptions(self, step: int, pending: Sequence[int], adopted: int = 0) -> Adoptions:
        """The products to adopt before step `step`, of the `pending` checkpoints (steps, oldest first).

        `adopted` is the step of the checkpoint whose product was adopted last.
        """
        if step == self.steps and self.log.mode != "replay":
            return Adoptions(tuple(pending) if self.adopts_at_end else ())
        if self.log.covers(step):
            recorded = self.log.adoptions.get(step, ())
            return Adoptions(tuple(checkpoint for checkpoint in pending if checkpoint in recorded))
        if step == 0:
            return Adoptions(tuple(pending))
        if self.lag_steps is not None:
            due = (checkpoint for checkpoint in pending if checkpoint + self.lag_steps <= step)
            return Adoptions(tuple(due))
        is_stale = self.staleness_steps is not None and step - adopted > self.staleness_steps
        return Adoptions(tuple(pending), "first_done" if is_stale else "newest_done")

    def is_requested(self, checkpoint: int) -> bool:
        """Whether the product of the checkpoint is requested; a replay requests only what it adopts."""
        return self.log.mode != "replay" or self.log.uses(checkpoint)

    def is_awaited(self, checkpoint: int) -> bool:
        """Whether training waits for just this product; otherwise a newer one serves as well."""
        return self.log.uses(checkpoint) or not self.adopts_when_ready or checkpoint in (0, self.steps)

    def is_superseded(self, checkpoint: int, adopted: int) -> bool:
        """Whether the product of the checkpoint is no longer needed once that of checkpoint `adopted` is."""
        return self.adopts_when_ready and checkpoint < adopted and not self.log.uses(checkpoint)


class RefreshQueue[T]:
    """The requests for one product of a stage, and their adoption by the schedule.

    `pending` requests are in order of their steps, and few: training waits for tables that are due or too
    old; of dev scores that are adopted when ready, the oldest, which may be in progress, and the newest are
    enough.
    """

    def __init__(self, product: Product[T], schedule: RefreshSchedule, executor: RefreshExecutor):
        self.product, self.schedule, self.executor = product, schedule, executor
        self.pending: list[RefreshRequest] = []
        self.adopted = 0

    def advance(self, step: int, weights: str | None) -> list[tuple[int, T]]:
        """Adopt what is due before step `step`; request the product of its checkpoint if `weights` are given.

        Return what was adopted: (step of the checkpoint, product).
        """
        # Collect finished results first, so that a new request cannot replace them.
        adopted = self._adopt(step)
        if weights is not None:
            self.submit(self.product.request(step, weights))
            adopted += self._adopt(step)
        return adopted

    def submit(self, request: RefreshRequest) -> None:
        """Request a product, unless the schedule says that it is never adopted."""
        if not self.schedule.is_requested(request.step):
            return
        if self.schedule.log.weights.get(request.step, request.weights) != request.weights:
            log.warning(
                "stage %s, step %d: the weights differ from those of the recorded run; its steps are "
                "repeated, but not bit by bit",
                request.stage,
                request.step,
            )
        request = replace(request, is_awaited=self.schedule.is_awaited(request.step))
        if not request.is_awaited and self.product.newest_suffices:
            self._cancel([pending for pending in self.pending[1:] if not self.executor.done(pending)])
        self.pending.append(request)
        self.executor.submit(request)

    def resubmit(self, checkpoints: Iterable[tuple[int, str | None]], adopted: Collection[int]) -> None:
        """After an interruption, request again the products of `checkpoints` (step, weights) that are not
        `adopted`.

        Raises RuntimeError if a checkpoint whose product is needed was removed (its weights are None).
        """
        self.adopted = max(adopted, default=0)
        when_ready = self.schedule.adopts_when_ready
        for step, weights in checkpoints:
            if step in adopted or (when_ready and (step < self.adopted or weights is None)):
                continue
            if weights is None:
                raise RuntimeError(
                    f"stage {self.product.stage_name} cannot continue: its checkpoint of step {step} was "
                    f"removed, and the {PRODUCT_NAMES[self.product.kind]} made from it is missing; train "
                    "again with --overwrite"
                )
            self.submit(self.product.request(step, weights))

    def collect(self, step: int) -> list[RefreshRequest]:
        """Return the requests whose products are adopted before step `step`, all done; wait where the
        schedule does."""
        if not self.pending:
            return []
        collected = self._choose(step)
        for request in collected:
            self.executor.wait([request])
            self.adopted = request.step
        superseded = [r for r in self.pending if self.schedule.is_superseded(r.step, self.adopted)]
        self._cancel([r for r in self.pending if r in collected or r in superseded])
        return collected

    def make(self, step: int, weights: str) -> RefreshRequest:
        """Have the product of one more checkpoint made, outside the schedule, and wait for it."""
        request = self.product.request(step, weights)
        self.executor.submit(request)
        self.executor.wait([request])
        self.executor.cancel([request])
        return request

    def close(self) -> None:
        """Cancel what is pending at the end of the stage."""
        self._cancel(self.pending)

    def _choose(self, step: int) -> list[RefreshRequest]:
        adoptions = self.schedule.adoptions(step, [request.step for request in self.pending], self.adopted)
        if adoptions.choose == "first_done":
            return [self.executor.wait(self.pending)]
        if adoptions.choose == "newest_done":
            return next(([r] for r in reversed(self.pending) if self.executor.done(r)), [])
        return [request for request in self.pending if request.step in adoptions.checkpoints]

    def _adopt(self, step: int) -> list[tuple[int, T]]:
        start, log_ = time.perf_counter(), self.schedule.log
        return [
            (
                request.step,
                self.product.adopt(request, step, time.perf_counter() - start, log_.is_decided(step)),
            )
            for request in self.collect(step)
        ]

    def _cancel(self, requests: Collection[RefreshRequest]) -> None:
        requests = list(requests)
        self.pending = [request for request in self.pending if request not in requests]
        if requests:
            self.executor.cancel(requests)


class Refreshes:
    """The refreshes of one stage: the queue of its tables of negatives, and that of its dev scores, if any.

    `executor_of` chooses who makes a product; `identity` holds the hashes of the data; `previous_stage` is
    given if the stage uses the result of the previous one.
    """

    def __init__(
        self,
        run: RunDir,
        name: str,
        stage: Stage,
        identity: Mapping[str, str],
        world: World,
        executor_of: Callable[[refresh_settings.Product], RefreshExecutor],
        adoption_logs: Mapping[ProductKind, AdoptionLog],
        previous_stage: PreviousStage | None = None,
    ):
        def queue[T](product: Product[T], settings: refresh_settings.Product) -> RefreshQueue[T]:
            adoption_log = adoption_logs.get(product.kind, AdoptionLog())
            schedule = RefreshSchedule.of(settings, stage.steps, product.adopts_at_end, adoption_log)
            return RefreshQueue(product, schedule, executor_of(settings))

        self.negatives = NegativeTables(run, name, stage, world, identity, previous_stage)
        self.tables: RefreshQueue[Generation] = queue(self.negatives, stage.effective_refresh)
        self.dev: RefreshQueue[float] | None = None
        if stage.effective_evaluate is not None:
            self.dev = queue(DevScore(run, name, stage, world), stage.effective_evaluate)

    def dev_score(self, step: int, weights: str) -> float:
        """Evaluate one more checkpoint on dev, and wait for its score."""
        assert self.dev is not None and isinstance(self.dev.product, DevScore)
        value: float = self.dev.product.read(self.dev.make(step, weights))["value"]
        return value

    @property
    def queues(self) -> list[RefreshQueue]:
        return [self.tables] if self.dev is None else [self.tables, self.dev]

    def are_due(self, step: int) -> bool:
        """Whether a product is made from the checkpoint of step `step`."""
        return any(queue.product.is_due(step) for queue in self.queues)

    @property
    def pending_steps(self) -> set[int]:
        """Steps of the checkpoints from which a product is still to be made or adopted."""
        return {request.step for queue in self.queues for request in queue.pending}

    def close(self) -> None:
        """Cancel what is pending at the end of the stage."""
        for queue in self.queues:
            queue.close()
