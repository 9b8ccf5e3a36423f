"""What is made of checkpoints while a stage trains: new negatives and dev measures; when, by whom, and when it is taken up."""

from typing import Any, Literal

from pydantic import PositiveInt, field_validator, model_validator

from pyserini_ance.recipe.parts import Settings
from pyserini_ance.recipe.splits import Splits


class AfterSteps(Settings):
    """What checkpoint S gave is adopted exactly at step S + `after_steps`: asynchronous, and yet the same in every run."""

    after_steps: PositiveInt


class Product(Settings):
    """What is made of a checkpoint every so many steps, by the training processes themselves (`inline`) or by a refresher
    beside them (`background`).

    `adopt: ready` takes it at the first step that finds it made; default: `after_steps` equal to `every_steps`.
    """

    every_steps: PositiveInt
    run: Literal["inline", "background"] = "inline"
    adopt: AfterSteps | Literal["ready"] | None = None

    @property
    def lag_steps(self) -> int | None:
        """Steps from the checkpoint to the adoption of what was made of it; None: as soon as it is ready."""
        if self.run == "inline":
            return 0
        if self.adopt == "ready":
            return None
        return self.adopt.after_steps if self.adopt else self.every_steps

    @field_validator("adopt", mode="before")
    @classmethod
    def is_ready_or_a_mapping(cls, value: Any) -> Any:
        """One message at the key itself, not one for each type that it might be of."""
        if isinstance(value, dict):
            return AfterSteps.model_validate(value)
        if value not in (None, "ready") and not isinstance(value, AfterSteps):
            raise ValueError("expected `ready` or `{after_steps: N}`")
        return value

    @model_validator(mode="after")
    def inline_is_adopted_at_once(self):
        if self.run == "inline" and self.adopt is not None:
            raise ValueError("run: inline is adopted at once; leave out `adopt`, or set run: background")
        return self


class Refresh(Product):
    """When the corpus is encoded and mined again with the model that is being trained: at step 0 and every so many steps.

    `first_with: previous` mines the tables of step 0 with the result of the stage before instead of what this stage starts from
    (episodes from the initial model: Sun et al. 2022, ANCE-Tele). No step trains on negatives of a checkpoint more than
    `max_staleness_steps` old: training waits (default with `adopt: ready`: 2 x every_steps; the other ways to adopt keep a
    bound of their own).

    With `chunks`, each refresh mines for one of so many equal parts of the queries, in turn, and until the next is adopted steps draw
    from that part alone (microsoft/ANCE: 5, `--ann_chunk_factor`); of joined splits, for such a part of each. The default is the
    paper's: all queries.
    """

    first_with: Literal["start", "previous"] = "start"
    max_staleness_steps: PositiveInt | None = None
    chunks: PositiveInt = 1

    def chunk(self, step: int, queries: int) -> slice | None:
        """Of the rows of all `queries`, those for which the checkpoint before step `step` is mined; None: for all."""
        if self.chunks == 1:
            return None
        number = step // self.every_steps % self.chunks
        return slice(queries * number // self.chunks, queries * (number + 1) // self.chunks)

    @property
    def staleness_steps(self) -> int:
        """The greatest age, in steps, of the checkpoint whose negatives a step trains on."""
        if self.lag_steps is None:
            return self.max_staleness_steps or 2 * self.every_steps
        return self.every_steps + self.lag_steps - 1

    @model_validator(mode="after")
    def bound_can_be_kept(self):
        least = self.every_steps if self.lag_steps is None else self.staleness_steps
        if self.max_staleness_steps is not None and self.max_staleness_steps < least:
            raise ValueError(
                f"max_staleness_steps {self.max_staleness_steps} cannot be kept: with every_steps {self.every_steps} and this `adopt` "
                f"negatives are up to {least} steps old; raise it to {least}, or refresh more often"
            )
        return self


class Evaluate(Product):
    """Measuring on the dev split while training; the stage's result is its best checkpoint if `keep_best`. With several splits,
    `queries` of each are measured, against the same documents, and what is decided goes by the mean of their values.

    `run` and `adopt` are by default those of the stage's `refresh`, whose vectors are used. `patience` ends the stage after so
    many evaluations in a row without a new best.
    """

    run: Literal["inline", "background"] | None = None
    split: Splits = ("dev",)
    measure: str = "RR@10"
    queries: PositiveInt | None = None
    sample_documents: PositiveInt | None = None
    keep_best: bool = True
    patience: PositiveInt | None = None

    @model_validator(mode="after")
    def patience_has_a_best(self):
        if self.patience is not None and not self.keep_best:
            raise ValueError("patience ends a stage at its best checkpoint; it needs keep_best: true")
        return self
