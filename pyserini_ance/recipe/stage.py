"""A stage, the terms of its loss, and its optimizer: the part of a recipe that says what a method is."""

from math import inf
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from pyserini_ance.recipe.parts import Settings, part_of
from pyserini_ance.recipe.products import Evaluate, Refresh
from pyserini_ance.recipe.start import Start, read_start

Beta = Annotated[float, Field(ge=0, lt=1)]


class Term(Settings):
    """One summand of the loss: for each anchor, its positive against a pool of negatives.

    With `anchor: document`, the positive drawn for each query is the anchor, the query its positive, and other queries the
    negatives (the dual term of Li et al. 2021, DANCE). A `regularizer` asks something of the vectors themselves, those of all
    anchors and positives of the step, in place of negatives and loss.
    """

    anchor: Literal["query", "document"] = "query"
    negatives: tuple[part_of("negatives"), ...] = ()
    pool: Literal["own", "step"] = "own"
    hardest: PositiveInt | None = None
    loss: part_of("loss") = Field(default={"kind": "nll"}, validate_default=True)
    regularizer: part_of("regularizer", optional=True) = None
    weight: float = 1.0

    @property
    def leaves(self) -> tuple:
        """All sources of negatives, mixes taken apart."""
        return tuple(leaf for source in self.negatives for leaf in source.leaves)

    @model_validator(mode="before")
    @classmethod
    def regularizes_the_step(cls, values: Any) -> Any:
        return {"pool": "step", **values} if isinstance(values, dict) and values.get("regularizer") else values

    @model_validator(mode="after")
    def regularizes_or_contrasts(self):
        if self.regularizer is not None and (self.negatives or self.hardest or self.pool == "own"):
            raise ValueError("a regularizer is of all anchors and positives of the step; give it a term of its own without negatives, pool, hardest")
        return self

    @model_validator(mode="after")
    def has_negatives(self):
        if self.pool == "own" and not self.negatives:
            raise ValueError("pool: own has no negatives; name a source under `negatives:` or use `pool: step`")
        return self


class Optimizer(Settings):
    """`lamb` is that of the papers (trainer/lamb.py); the papers' code runs it with `weight_decay: 0`.

    The rate warms up from 0, then decays to 0 at the horizon of the stage's schedule.
    """

    kind: Literal["adamw", "lamb"] = "adamw"
    learning_rate: float = Field(gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: float = Field(default=1e-8, gt=0)
    warmup_steps: int = Field(default=0, ge=0)
    decay: Literal["linear", "cosine", "constant"] = "linear"
    max_grad_norm: float = Field(default=1.0, gt=0)


class Stage(Settings):
    """A run of optimiser steps with one objective, `batch_queries` queries a step, with one, or all, of their positives.

    Each query comes once an epoch, in a random order; with `in_a_row` as many times one after the other, each time with a positive and
    negatives drawn for it: 20 in microsoft/ANCE, whose batches of 64 hold 4 to 8 queries.

    `start` is the untrained encoder (`initial`), the result of the stage before (`previous`; of the first stage the same), or a Start.
    `chunk_queries` bounds what a process has in memory at once: own pools accumulate, a step pool goes through GradCache; the draw and
    the gradient stay the same. Checkpoints are written where negatives are mined, where dev is measured, and every
    `save_every_steps`. With `train: queries` the document tower is frozen as it comes, and tied towers part: document vectors stay
    the same through the stage.

    The learning rate follows a schedule of `schedule_steps` (default: one cycle, or up to the end of the stage), which may be longer
    than the stage. Every `schedule_cycle_steps` it begins anew, with its warm-up. A stage that goes on in the schedule of those
    before it says by `schedule_offset_steps` how much of it they have used.
    """

    train: Literal["both", "queries"] = "both"
    start: Annotated[Literal["initial", "previous"] | Start, BeforeValidator(read_start)] = "previous"
    steps: PositiveInt
    schedule_steps: PositiveInt | None = None
    schedule_cycle_steps: PositiveInt | None = None
    schedule_offset_steps: int = Field(default=0, ge=0)
    keep_optimizer: bool = False
    batch_queries: PositiveInt
    in_a_row: PositiveInt = 1
    chunk_queries: PositiveInt | None = None
    positives: Literal["first", "random", "all"] = "random"
    terms: dict[str, Term] = Field(min_length=1)
    optimizer: Optimizer
    refresh: Refresh | None = None
    evaluate: Evaluate | None = None
    save_every_steps: PositiveInt | None = None

    @property
    def sources(self) -> tuple:
        """Of negatives, those of all terms."""
        return tuple(source for term in self.terms.values() for source in term.negatives)

    @property
    def leaves(self) -> tuple:
        """The same, mixes taken apart."""
        return tuple(leaf for term in self.terms.values() for leaf in term.leaves)

    @property
    def ranks_training_queries(self) -> bool:
        """Whether each refresh ranks documents for all training queries: from one to the next is seen what was forgotten."""
        leaves = (leaf for term in self.terms.values() if term.anchor == "query" for leaf in term.leaves)
        return self.refreshing.chunks == 1 and any(leaf.ranked and leaf.refreshed for leaf in leaves)

    @property
    def horizon_steps(self) -> int:
        """Where the learning rate ends, in steps of its schedule."""
        return self.schedule_steps or self.schedule_cycle_steps or self.schedule_offset_steps + self.steps

    def schedule_step(self, step: int) -> int:
        """Where step `step` (from 0) stands in the schedule of the learning rate."""
        place = self.schedule_offset_steps + step
        return place % self.schedule_cycle_steps if self.schedule_cycle_steps else place

    @property
    def starts_outside(self) -> bool:
        """Whether the stage begins with weights that were made before the run."""
        return isinstance(self.start, Start) and self.start.is_outside

    @property
    def refreshing(self) -> Refresh:
        """How tables of negatives are made: as `refresh` says; those of a stage without one, once and inline."""
        return self.refresh or Refresh(every_steps=self.steps)

    @property
    def measuring(self) -> Evaluate | None:
        """`evaluate`, with what it leaves open taken from `refresh`."""
        if self.evaluate is None:
            return None
        run = self.evaluate.run or self.refreshing.run
        adopt = self.evaluate.adopt or (self.refreshing.adopt if run == "background" else None)
        return self.evaluate.model_copy(update={"run": run, "adopt": adopt})

    @property
    def takes_over(self) -> bool:
        """Whether a source takes up the negatives with which the stage before ended."""
        return any(leaf.takes_over for leaf in self.leaves)

    @property
    def mines_with_previous(self) -> bool:
        """Whether the first tables are mined with the result of the stage before."""
        return self.refresh is not None and self.refresh.first_with == "previous"

    def refresh_is_due(self, step: int) -> bool:
        """The checkpoint before step `step` (from 0) is to be mined with, for it will be used in this stage."""
        return (
            self.refresh is not None
            and step % self.refresh.every_steps == 0
            and (step == 0 or step + (self.refresh.lag_steps or 0) < self.steps)
        )

    def evaluation_is_due(self, step: int) -> bool:
        return self.evaluate is not None and step > 0 and (step == self.steps or step % self.evaluate.every_steps == 0)

    @model_validator(mode="after")
    def is_consistent(self):
        if self.keep_optimizer and (self.start == "initial" or self.starts_outside):
            given = "initial" if self.start == "initial" else "weights alone"
            raise ValueError(f"keep_optimizer: true makes no sense with start: {given}; use start: previous")
        refreshed = any(source.refreshed for source in self.sources)
        if refreshed and self.refresh is None:
            raise ValueError("a source of negatives is mined with the model; say how often: `refresh: {every_steps: N}`")
        if self.refresh is not None and not refreshed:
            raise ValueError("`refresh:` is set but no source of negatives is mined with the model")
        if self.refresh and self.refresh.chunks > 1 and any(len({leaf.refreshed for leaf in s.leaves}) > 1 for s in self.sources):
            raise ValueError("refresh.chunks: a mix holds a source that is mined once, for all queries; leave chunks out, or list it beside the mix")
        if self.train != "queries" and any(source.live for source in self.sources):
            raise ValueError("a `live` source searches document vectors that stay as they are; set train: queries, or draw from `ann`")
        if self.measuring and self.measuring.run == "inline" and self.evaluate.adopt:
            raise ValueError("evaluate.adopt is set, but dev is measured inline and adopted at once; leave it out, or set evaluate.run: background")
        if self.positives == "all" and any(term.anchor == "document" for term in self.terms.values()):
            raise ValueError("positives: all has no one document to be the anchor of a term; use positives: random or first")
        return self

    @model_validator(mode="after")
    def rate_is_above_zero(self):
        offset, cycle, warmup = self.schedule_offset_steps, self.schedule_cycle_steps, self.optimizer.warmup_steps
        if cycle and warmup >= cycle:
            raise ValueError(f"optimizer.warmup_steps {warmup} fill the schedule_cycle_steps {cycle}: no cycle would reach the learning rate")
        own = "schedule_offset_steps + steps" if offset else "steps"
        end, name = min((offset + self.steps, own), (cycle or inf, "schedule_cycle_steps"))
        if self.horizon_steps < end:
            raise ValueError(f"schedule_steps {self.schedule_steps} ends before {name} {end}: the rest would train at rate 0")
        return self
