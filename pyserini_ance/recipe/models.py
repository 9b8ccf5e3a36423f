"""The recipe: one frozen tree of settings that says everything about an experiment."""

import re
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from pyserini_ance.recipe.parts import Settings, did_you_mean, part_of
from pyserini_ance.recipe.products import Evaluate, Product, Refresh
from pyserini_ance.recipe.start import Start, read_start

Beta = Annotated[float, Field(ge=0, lt=1)]
RESERVED_NAMES = {"bm25", "untrained", "initial"}  # names of rows and checkpoints that are not stages
START_PREFIX = "start-"  # of rows and checkpoints of what a stage starts from, before the stage's name


class Term(Settings):
    """One summand of the loss: for each anchor, its positive against a pool of negatives.

    With `anchor: document`, the positive drawn for each query is the anchor, the query its positive, and other queries the
    negatives (the dual term of Li et al. 2021, DANCE).
    """

    anchor: Literal["query", "document"] = "query"
    negatives: tuple[part_of("negatives"), ...] = ()
    pool: Literal["own", "step"] = "own"
    hardest: PositiveInt | None = None
    loss: part_of("loss") = Field(default={"kind": "nll"}, validate_default=True)
    weight: float = 1.0

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
    chunk_queries: PositiveInt | None = None
    positives: Literal["first", "random", "all"] = "random"
    terms: dict[str, Term] = Field(min_length=1)
    optimizer: Optimizer
    refresh: Refresh | None = None
    evaluate: Evaluate | None = None
    save_every_steps: PositiveInt | None = None

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
    def refreshing(self) -> Product:
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
        refreshed = any(source.refreshed for term in self.terms.values() for source in term.negatives)
        if refreshed and self.refresh is None:
            raise ValueError("a source of negatives is mined with the model; say how often: `refresh: {every_steps: N}`")
        if self.refresh is not None and not refreshed:
            raise ValueError("`refresh:` is set but no source of negatives is mined with the model")
        if self.train != "queries" and any(source.live for term in self.terms.values() for source in term.negatives):
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


class Encoding(Settings):
    """How texts become vectors for mining and dev evaluation. `auto`: bf16 where the processor is fast at it."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    tokens_per_batch: PositiveInt = 8192
    training_tokens_per_batch: PositiveInt = 8192
    search: Literal["torch", "faiss"] = "torch"


class RefresherProcess(Settings):
    """The refresher of `run: background`: a `child` of the training command, or started by somebody `elsewhere`.

    `threads` and `processes` (under torchrun) are a child's. Training that needs it and does not hear of it stops after
    `wait_seconds`; a refresher that does not hear of training leaves after `leave_after_seconds`.
    """

    start: Literal["child", "elsewhere"] = "child"
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    threads: PositiveInt | None = None
    processes: PositiveInt = 1
    wait_seconds: PositiveInt = 600
    leave_after_seconds: PositiveInt = 600


class Retention(Settings):
    """What a run directory keeps: of each stage the newest and the best checkpoints, the newest document vectors, and tables of
    negatives, all of them by default. What training still needs, or somebody reads, stays in any case.
    """

    checkpoints: PositiveInt = 1
    tables: PositiveInt | Literal["all"] = "all"

    @field_validator("tables", mode="before")
    @classmethod
    def is_all_or_a_number(cls, value: Any) -> Any:
        """One message at the key itself, not one for each type that it might be of."""
        if value != "all" and (not isinstance(value, int) or value < 1):
            raise ValueError("expected `all` or a number from 1")
        return value


class Bm25(Settings):
    """BM25 by Pyserini: `index` is `build` (from the collection), a Lucene index folder, or a prebuilt index name."""

    k1: float = Field(default=0.9, ge=0)
    b: float = Field(default=0.4, ge=0, le=1)
    threads: PositiveInt = 2
    index: str = "build"
    hits: PositiveInt = 200


class Test(Settings):
    """The closing evaluation of every row of the table; `precision` is that of the documents, in the index too.

    A model's row comes once more for each of `indexes`, Faiss factory strings: the ranking as that index makes it.
    """

    split: str = "test"
    measures: tuple[str, ...] = ("nDCG@10", "RR@10", "R@100")
    hits: PositiveInt = 100
    precision: Literal["auto", "fp32", "bf16"] = "fp32"
    indexes: tuple[str, ...] = ()


class Recipe(Settings):
    """An experiment: data, encoder, stages, and how it is measured. `expect:` holds published or earlier figures.

    `threads` are the processor threads of each training process (default: torch's choice).
    """

    name: str
    about: str = ""
    data: part_of("data")
    encoder: part_of("encoder")
    encoding: Encoding = Encoding()
    bm25: Bm25 | None = Bm25()
    stages: dict[str, Stage] = Field(min_length=1)
    test: Test = Test()
    train_split: str = "train"
    refresher: RefresherProcess = RefresherProcess()
    keep: Retention = Retention()
    threads: PositiveInt | None = None
    seed: int = Field(default=42, ge=0)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    cache: Path = Field(default=Path("~/.cache/pyserini_ance"), validate_default=True)
    expect: dict[str, Any] = {}

    @field_validator("cache")
    @classmethod
    def expand_home(cls, path: Path) -> Path:
        return path.expanduser()

    @property
    def outside_starts(self) -> dict[str, Start]:
        """What was made before the run and stages start from, by the name of its row and checkpoint: that of the first such stage."""
        first: dict[Start, str] = {}
        for name, stage in self.stages.items():
            if stage.starts_outside:
                first.setdefault(stage.start, f"{START_PREFIX}{name}")
        return {name: start for start, name in first.items()}

    @field_validator("stages")
    @classmethod
    def names_fit_files(cls, stages: dict[str, Stage]) -> dict[str, Stage]:
        for name in stages:
            if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) or name in RESERVED_NAMES or name.startswith(START_PREFIX):
                reserved = ", ".join([*sorted(RESERVED_NAMES), f"{START_PREFIX}..."])
                raise ValueError(f"stage name {name!r}: use small letters, digits and single dashes, and none of {reserved}")
        return stages

    @field_validator("stages")
    @classmethod
    def starts_are_earlier_stages(cls, stages: dict[str, Stage]) -> dict[str, Stage]:
        earlier: list[str] = []
        problems = []
        for name, stage in stages.items():
            if isinstance(stage.start, Start) and not stage.start.is_outside and stage.start.stage not in earlier:
                problems.append(_no_earlier_stage(name, stage.start.stage, earlier))
            earlier.append(name)
        if problems:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return stages

    @model_validator(mode="after")
    def kept_optimizers_are_alike(self):
        for (before, former), (name, stage) in pairwise(self.stages.items()):
            kind, kept = stage.optimizer.kind, former.optimizer.kind
            if stage.keep_optimizer and kind != kept:
                raise ValueError(f"stages.{name}.keep_optimizer: its optimizer is {kind}, that of stages.{before} is {kept}; use one kind for both")
        return self

    def _refuse_passages_without_a_vector(self) -> None:
        reading = self.encoder.tokenization.document
        terms = [term for stage in self.stages.values() for term in stage.terms.values()]
        if reading.passages > 1 and any(term.anchor == "document" for term in terms):
            raise ValueError(
                "a term with `anchor: document` takes a document for one vector, but encoder.tokenization.document.passages is "
                f"{reading.passages}; use passages: 1 (FirstP)"
            )

    @model_validator(mode="after")
    def first_stage_starts(self):
        name, first = next(iter(self.stages.items()))
        if first.keep_optimizer:
            raise ValueError(f"stages.{name} is the first stage: there is no optimizer to keep")
        self._refuse_passages_without_a_vector()
        needs = {need for stage in self.stages.values() for term in stage.terms.values() for s in term.negatives for need in s.needs}
        for (before, stage), name in zip(pairwise(self.stages.values()), list(self.stages)[1:], strict=True):
            if stage.keep_optimizer and stage.train != before.train:
                raise ValueError(f"stages.{name} trains other towers than the stage before: there are no moments to keep; drop keep_optimizer")
        for source in (s for stage in self.stages.values() for term in stage.terms.values() for s in term.negatives if "bm25" in s.needs):
            depth = source.depth + source.guarded_depth
            if self.bm25 and depth > self.bm25.hits:
                looks = f"with its guards looks at {depth} documents" if source.guards else f"has depth {depth}"
                raise ValueError(f"a `run` source {looks}, but bm25.hits is {self.bm25.hits}; set bm25.hits={depth}")
        if "bm25" in needs and self.bm25 is None:
            raise ValueError("a `run` source needs BM25, but `bm25: null`; name a run file in the source or configure `bm25:`")
        return self


def _no_earlier_stage(name: str, wanted: str, earlier: list[str]) -> InitErrorDetails:
    known = f"earlier stages: {', '.join(earlier)}" if earlier else "no stage comes before this one"
    message = f"no stage {wanted!r} before {name!r}{did_you_mean(wanted, earlier)}; {known}"
    return InitErrorDetails(type=PydanticCustomError("no_stage", "{message}", {"message": message}), loc=(name, "start", "stage"), input=wanted)
