"""The recipe: one frozen tree of settings that says everything about an experiment."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from pyserini_ance.recipe import agreement
from pyserini_ance.recipe.expect import Expect
from pyserini_ance.recipe.parts import Settings, did_you_mean, part_of
from pyserini_ance.recipe.splits import TrainSplit, read_train_split
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.recipe.start import Start
from pyserini_ance.recipe.test import Test

RESERVED_NAMES = {"bm25", "untrained", "initial"}  # names of rows and checkpoints that are not stages
START_PREFIX = "start-"  # of rows and checkpoints of what a stage starts from, before the stage's name


class Encoding(Settings):
    """How texts become vectors for mining and dev evaluation, and are searched. `auto`: bf16 where the processor is fast at it.

    What is in memory at once is bounded by `tokens_per_batch` in encoding, by `training_tokens_per_batch` in a step, and in a search
    by the vectors of `documents_per_block`; all others are mapped from disk.
    """

    precision: Literal["auto", "fp32", "bf16"] = "auto"
    tokens_per_batch: PositiveInt = 8192
    training_tokens_per_batch: PositiveInt = 8192
    search: Literal["torch", "faiss"] = "torch"
    documents_per_block: PositiveInt = 65_536


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


class Rm3(Settings):
    """Pseudo-relevance feedback, with Pyserini's own defaults: terms and documents to expand a query by, and the weight it keeps."""

    fb_terms: PositiveInt = 10
    fb_docs: PositiveInt = 10
    original_query_weight: float = Field(default=0.5, ge=0, le=1)


class Bm25(Settings):
    """BM25 by Pyserini: `index` is `build` (from the collection), a Lucene index folder, or a prebuilt index name.

    With `rm3` the closing table has a row `bm25+rm3` too, and what is built is an index with document vectors; negatives are BM25's.
    """

    k1: float = Field(default=0.9, ge=0)
    b: float = Field(default=0.4, ge=0, le=1)
    threads: PositiveInt = 2
    index: str = "build"
    hits: PositiveInt = 200
    rm3: Rm3 | None = None


class Recipe(Settings):
    """An experiment: data, encoder, stages, and how it is measured. `expect` holds published or earlier figures of the last stage's result.

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
    train_split: Annotated[TrainSplit, BeforeValidator(read_train_split)] = TrainSplit(splits="train")
    refresher: RefresherProcess = RefresherProcess()
    keep: Retention = Retention()
    threads: PositiveInt | None = None
    seed: int = Field(default=42, ge=0)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    cache: Path = Field(default=Path("~/.cache/pyserini_ance"), validate_default=True)
    expect: Expect = {}

    @field_validator("cache")
    @classmethod
    def expand_home(cls, path: Path) -> Path:
        return path.expanduser()

    @property
    def sources(self) -> list:
        """Of negatives, of all stages."""
        return [source for stage in self.stages.values() for source in stage.sources]

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
    def parts_agree(self):
        agreement.check(self)
        return self

    def stage_before(self, name: str) -> str | None:
        """The stage that the recipe lists before stage `name`; None before the first."""
        names = list(self.stages)
        return names[names.index(name) - 1] if name != names[0] else None


def _no_earlier_stage(name: str, wanted: str, earlier: list[str]) -> InitErrorDetails:
    known = f"earlier stages: {', '.join(earlier)}" if earlier else "no stage comes before this one"
    message = f"no stage {wanted!r} before {name!r}{did_you_mean(wanted, earlier)}; {known}"
    return InitErrorDetails(type=PydanticCustomError("no_stage", "{message}", {"message": message}), loc=(name, "start", "stage"), input=wanted)
