"""When the products of a stage's checkpoints (tables of negatives, dev scores) are requested and adopted."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from pyserini_ance.distributed.world import World
from pyserini_ance.recipe.refresh_settings import ProductSettings
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.generation import PRODUCT_NAMES, ProductKind, RefreshRequest
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.executors import RefreshExecutor

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


@dataclass(eq=False)
class RefreshQueue[T](ABC):
    """The requests for one kind of product of a stage's checkpoints, and their adoption.

    A product is adopted `lag_steps` of its settings after its checkpoint; None: when it is ready, and no
    product is used for steps that are more than `staleness_steps` after its checkpoint. `adoption_log` holds
    adoptions to repeat.

    `pending` requests are in order of their steps, and few: training waits for tables that are due or too
    old; of dev scores that are adopted when ready, the oldest, which may be in progress, and the newest are
    enough. `adopted` is the step of the checkpoint whose product was adopted last.

    event: the name of its adoptions in `decisions.jsonl`. is_score: whether no step depends on the product:
    what is pending at the end of the stage is still adopted, and a request that training does not wait for
    replaces older ones.
    """

    kind: ClassVar[ProductKind]
    event: ClassVar[str]
    is_score: ClassVar[bool]

    run: RunDir
    stage_name: str
    stage: Stage
    world: World
    settings: ProductSettings
    executor: RefreshExecutor
    adoption_log: AdoptionLog

    def __post_init__(self) -> None:
        self.log = RunLog(self.run, self.world.is_main)
        self.pending: list[RefreshRequest] = []
        self.adopted = 0

    @abstractmethod
    def is_due(self, step: int) -> bool:
        """Whether the product is made from the checkpoint before step `step`."""

    @abstractmethod
    def adopt(self, request: RefreshRequest, step: int, waited_seconds: float) -> T:
        """Open the product of a request that is done, adopt it before step `step`, and record that."""

    def restore(self, decisions: Sequence[dict[str, Any]]) -> None:  # noqa: B027 (optional)
        """Restore what is in use after these adoptions, when a stage is resumed. Nothing by default."""

    def request(self, step: int, weights: str) -> RefreshRequest:
        """The request for the product of the checkpoint before step `step`, whose weights have this hash."""
        return RefreshRequest(self.kind, self.stage_name, step, weights)

    def advance(self, step: int, weights: str | None) -> list[tuple[int, T]]:
        """Adopt what is due before step `step`; request the product of its checkpoint if `weights` are given.

        Return what was adopted: (step of the checkpoint, product).
        """
        # Collect finished results first, so that a new request cannot replace them.
        adopted = self._adopt(step)
        if weights is not None:
            self.submit(self.request(step, weights))
            adopted += self._adopt(step)
        return adopted

    def submit(self, request: RefreshRequest) -> None:
        """Request a product, unless this is a replay that does not adopt it."""
        is_recorded = request.step in self.adoption_log.weights
        if self.adoption_log.mode == "replay" and not is_recorded:
            return
        if is_recorded and self.adoption_log.weights[request.step] != request.weights:
            log.warning(
                f"stage {request.stage}, step {request.step}: the weights differ from those of the recorded "
                "run; its steps are repeated, but not bit by bit"
            )
        is_exact = self.settings.lag_steps is not None or request.step in (0, self.stage.steps)
        request = replace(request, is_awaited=is_recorded or is_exact)
        if not request.is_awaited and self.is_score:
            self._cancel([pending for pending in self.pending[1:] if not self.executor.done(pending)])
        self.pending.append(request)
        self.executor.submit(request)

    def resubmit(self, checkpoints: Iterable[tuple[int, str | None]], adopted: Collection[int]) -> None:
        """After an interruption, request again the products of `checkpoints` (step, weights) that are not
        `adopted`.

        Raises RuntimeError if a checkpoint whose product is needed was removed (its weights are None).
        """
        self.adopted = max(adopted, default=0)
        when_ready = self.settings.lag_steps is None
        for step, weights in checkpoints:
            if step in adopted or (when_ready and (step < self.adopted or weights is None)):
                continue
            if weights is None:
                raise RuntimeError(
                    f"stage {self.stage_name} cannot continue: its checkpoint of step {step} was "
                    f"removed, and the {PRODUCT_NAMES[self.kind]} made from it is missing; train again with "
                    "--overwrite"
                )
            self.submit(self.request(step, weights))

    def collect(self, step: int) -> list[RefreshRequest]:
        """Return the requests whose products are adopted before step `step`, all done; wait where needed."""
        if not self.pending:
            return []
        log, lag, longest = self.adoption_log, self.settings.lag_steps, self.settings.staleness_steps
        if step == self.stage.steps and log.mode != "replay":
            collected = self.pending if self.is_score else []
        elif log.covers(step):
            collected = [request for request in self.pending if request.step in log.adoptions.get(step, ())]
        elif step == 0:
            collected = self.pending
        elif lag is not None:
            collected = [request for request in self.pending if request.step + lag <= step]
        elif longest is not None and step - self.adopted > longest:
            collected = [self.executor.wait(self.pending)]
        else:  # of tables the newest that are done, and every score
            collected = [r for r in self.pending if self.executor.done(r)][0 if self.is_score else -1 :]
        for request in collected:
            self.executor.wait([request])
            self.adopted = request.step
        older = [r for r in self.pending if r.step < self.adopted and r.step not in log.weights]
        self._cancel([*collected, *(older if lag is None else [])])
        return collected

    def close(self) -> None:
        self._cancel(self.pending)

    def _adopt(self, step: int) -> list[tuple[int, T]]:
        start = time.perf_counter()
        return [(r.step, self.adopt(r, step, time.perf_counter() - start)) for r in self.collect(step)]

    def _cancel(self, requests: Collection[RefreshRequest]) -> None:
        self.pending = [request for request in self.pending if request not in requests]
        if requests:
            self.executor.cancel(requests)

    def _record(self, step: int, request: RefreshRequest, **values: Any) -> dict[str, Any]:
        """Record the decision to adopt, unless the run did so before an interruption; return the fields that
        tell which adoption a metric belongs to."""
        adoption = {"stage": self.stage_name, "step": step, "checkpoint_step": request.step}
        log = self.adoption_log
        if log.mode != "resumed" or request.step not in log.adoptions.get(step, ()):
            self.log.decide(self.event, **adoption, **values, weights=request.weights)
        return adoption
