"""The recipe: one frozen tree of settings that fully describes an experiment."""

import os
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, ValidationInfo, field_validator, model_validator

from pyserini_ance.llm import ServerUrl
from pyserini_ance.recipe.components import Component, Settings, component_of, expected, keys_of, settings_of
from pyserini_ance.recipe.consistency import check_consistency
from pyserini_ance.recipe.evaluation_settings import Expect, FinalEvaluation
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.splits import MergedSplits, merged_name
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.recipe.trained_teacher import TrainedTeacher

if TYPE_CHECKING:  # at run time, component packages import the recipe, and component_of imports them by name
    from pyserini_ance.data.formats.format import Format
    from pyserini_ance.encoders.config import EncoderConfig
    from pyserini_ance.negatives.source import Source
else:
    Format, EncoderConfig = Component, Settings

Anchor = Literal["query", "document"]
Tracker = Literal["tensorboard", "wandb", "trackio"]
# One name is a list of it; null is none.
Trackers = Annotated[
    tuple[Tracker, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value or [])
]
RESERVED_NAMES = {"bm25", "untrained", "initial", "hybrid"}  # rows and checkpoints that are not stages
DEFAULT_CACHE = Path("~/.cache/pyserini_ance")  # or in XDG_CACHE_HOME


def cache_folder(cache: str | Path | None = None) -> Path:
    """The folder of everything that is read or encoded once; by default that of the recipes."""
    path, shared = DEFAULT_CACHE if cache is None else Path(cache), os.environ.get("XDG_CACHE_HOME")
    return Path(shared, path.name) if path == DEFAULT_CACHE and shared else path.expanduser()


START_PREFIX = "start-"  # prefixes a stage's name in the row and checkpoint of its external initial weights


class EmbeddingServer(Settings):
    """A server that speaks OpenAI's embeddings API and takes token ids: vLLM, text-embeddings-inference."""

    url: ServerUrl
    """The address of its API, such as `http://localhost:8000/v1`; a key is in OPENAI_API_KEY alone."""
    model: str
    """The name of the model there."""


class Encoding(Settings):
    """How texts are encoded and searched for mining and dev evaluation.

    `tokens_per_batch` bounds memory; vectors are mapped from disk.
    """

    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """The precision of encoding, of the vectors, and of a cross-encoder that is a teacher; `auto` is bf16
    where the device is fast at it, else fp16 on GPUs with tensor cores (Volta, Turing), else fp32."""
    tokens_per_batch: PositiveInt | None = None
    """Tokens that pass through a tower at once, in training too; null: 1,024 on a CPU, 32,768 on a GPU.

    Without in-batch negatives, also the tokens whose activations a training process keeps for the gradient: a
    step with more accumulates gradients over chunks of its queries (null: 32,768). With them it keeps those
    of all texts, unless `chunk_queries` bounds them.
    """
    search: Annotated[
        Literal["auto", "torch", "faiss"] | PositiveInt,
        expected("auto, torch, faiss or a number of dimensions"),
    ] = "auto"
    """The library that searches exactly; `auto` is faiss on a CPU and torch on a GPU. Where the GPU holds the
    vectors, and on a CPU that multiplies in bf16, `auto` searches many vectors for many queries with products
    in bf16, proves each query's ranking, and repeats in fp32 those without a proof. A number, such as 64:
    candidates are found by the first 64 numbers of vectors, four times as many as are needed, and ranked by
    all; the final evaluation is exact."""
    engine: Annotated[
        Literal["inline", "ray"] | EmbeddingServer,
        expected("inline, ray, or the keys url and model of a server", EmbeddingServer),
    ] = "inline"
    """What encodes a whole collection: this process, tasks of a Ray cluster, or a server with the same
    weights, of which 32 vectors are first compared with ours. `--resume` may go on with another one."""


class Bm25(Settings):
    """BM25 by Pyserini: two rows of the results table (alone, and fused with the result), and the ranking of
    `bm25` negatives."""

    k1: float = Field(default=0.9, ge=0)
    """The saturation of term frequency."""
    b: float = Field(default=0.4, ge=0, le=1)
    """The strength of length normalization."""
    index: str = "build"
    """`build` (from the collection), a Lucene index folder, or the name of a prebuilt index."""
    hits: PositiveInt = 200
    """Documents that are retrieved for each training query."""
    names_or_paths = frozenset({"index"})


class FirstPass(Settings):
    """How the first pass reads queries (the defaults are what Pyserini's class `ance` does), and what becomes
    of the documents that it finds."""

    length_tokens: PositiveInt = 64
    """As `encoder.tokenization.query.length_tokens`."""
    template: str = "{text}"
    """As `encoder.tokenization.query.template`."""
    words: PositiveInt | None = None
    """How many words of a document become a field of queries, the first ones; null: all its contents."""


class Recipe(Settings):
    """An experiment: data, encoder, training stages and final evaluation."""

    name: str
    """The name of the experiment; by default folder and file name, as in `demo/ance`."""
    data: Annotated[Format, component_of("data")]
    """The collection: documents, queries and judgments."""
    encoder: Annotated[EncoderConfig, settings_of("pyserini_ance.encoders.config", "EncoderConfig")]
    """The encoder and the weights that it starts from."""
    first_pass: FirstPass | None = None
    """Rank the documents for each query by the encoder that training starts from; the contents of the best
    ones are fields of the query, `first_1`, `first_2` and so on, for `encoder.tokenization.query.template`
    (ANCE-PRF, Yu et al. 2021, arXiv:2108.13454). Their tower stays: `trainable: query_tower`."""
    encoding: Encoding = Encoding()
    """How texts are encoded and searched."""
    bm25: Bm25 | None = Bm25()
    """BM25's settings; null: no rows `bm25` and `hybrid`, and no `bm25` negatives."""
    stages: dict[str, Stage] = Field(min_length=1)
    """The training stages, by name, in the order in which they run."""
    teachers: dict[str, TrainedTeacher] = Field(default={})
    """The cross-encoders that are trained between stages, by name; those after one stage in this order."""
    final_evaluation: FinalEvaluation = FinalEvaluation()
    """The measures, splits and rankings of the evaluation after training."""
    train_split: MergedSplits = ("train",)
    """The split to train on, or several, merged: the queries of all are one set, each once an epoch in one
    order (Karpukhin et al. 2020, DPR, and Xiong et al. 2021, ANCE: "multi")."""
    refresher: Literal["subprocess", "external"] = "subprocess"
    """Who starts the refresher of `mode: async`: the training command (`subprocess`), on the GPU after
    training's, or else on training's; or you with `pyserini-ance refresh` (`external`)."""
    save_total_limit: PositiveInt = 1
    """The number of newest checkpoints to keep of each stage, besides its result and those that are
    still needed or read."""
    threads: PositiveInt | None = None
    """CPU threads of each training process, and of the refresher's; null: torch's choice."""
    seed: int = Field(default=42, ge=0, lt=2**63)
    """The seed of all random choices."""
    shard: bool = False
    """Whether each process of a torchrun holds a part of the weights that train, their gradients and moments
    (FSDP2; not in fp16), with `lora` only of the frozen weights. `--resume` may change it."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    """`auto`, `cpu`, `cuda` or `cuda:N`: several processes take the GPUs from N on. `auto` is `cuda` where
    there is one."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """The precision of training; `auto` as in `encoding.precision`. `fp16` is for GPUs alone; it scales the
    loss, and skips a step whose gradients overflow."""
    cache: Path = Field(default=DEFAULT_CACHE, validate_default=True)
    """The folder of prepared data, which runs share; by default in XDG_CACHE_HOME, if that is set."""
    log_with: Trackers = ()
    """The trackers that get what `metrics.jsonl` records: `tensorboard`, `wandb` or `trackio`, each
    a package of that name."""
    expect: Expect = Field(default={})
    """Published or earlier scores of the last stage's result, by split and measure; the results table
    compares with them. They hold for this recipe: a variant of it, by overrides or `extends`, has none of
    them, unless it differs only in chance, machine, numerics or paths of data."""

    @cached_property
    def file(self) -> Path | None:
        """The file that `load` read; None for a recipe that was made otherwise.

        Not a setting: it is not compared, hashed or written.
        """
        return None

    @field_validator("cache")
    @classmethod
    def expand_home(cls, path: Path) -> Path:
        return cache_folder(path)

    @property
    def exact_encoding(self) -> Encoding:
        """How documents are encoded, and searched exactly, for the final evaluation and the first pass."""
        search = "auto" if isinstance(self.encoding.search, int) else self.encoding.search
        exact = {"precision": self.final_evaluation.precision, "search": search}
        return self.encoding.model_copy(update=exact)

    @property
    def train_name(self) -> str:
        """The name of the split that is trained on, merged or not."""
        return merged_name(self.train_split)

    @property
    def knows_last_positive_alone(self) -> bool:
        """Whether training takes only a query's last judged document as relevant."""
        return any(stage.positives == "last" for stage in self.stages.values())

    @property
    def anchored_sources(self) -> "list[tuple[Anchor, Source]]":
        """The sources of negatives of all stages and teachers, each with the side of its anchors."""
        terms = [term for stage in self.stages.values() for term in stage.terms.values()]
        found = [(term.anchor, source) for term in terms for source in term.negatives]
        for teacher in self.teachers.values():
            found += [("query", source) for source in teacher.negatives]
        return found

    @property
    def sources(self) -> "list[Source]":
        """The sources of negatives of all stages and teachers."""
        return [source for _, source in self.anchored_sources]

    @property
    def training_needs(self) -> frozenset[str]:
        """Inputs of sources and teachers that the run must prepare, as `MiningComponent.needs`."""
        needs = [source.needs for source in self.sources]
        needs += [teacher.needs for stage in self.stages.values() for teacher in stage.teachers.values()]
        return frozenset().union(*needs)

    @property
    def finds_positives(self) -> bool:
        """Whether questions without positives train, with those of `refresh.positives_top_k`."""
        return any(stage.effective_refresh.positives_top_k for stage in self.stages.values())

    @property
    def external_starts(self) -> dict[str, InitFrom]:
        """Initial weights made before the run, by the name of their row and checkpoint: that of the first
        such stage."""
        first: dict[InitFrom, str] = {}
        for name, stage in self.stages.items():
            if isinstance(stage.init_from, InitFrom) and stage.init_from.is_external:
                first.setdefault(stage.init_from, f"{START_PREFIX}{name}")
        return {name: start for start, name in first.items()}

    @field_validator("encoder")
    @classmethod
    def fill_instruction(cls, encoder: EncoderConfig, info: ValidationInfo) -> EncoderConfig:
        """Put the collection's instruction into the template of queries."""
        settings, data = encoder.tokenization, info.data.get("data")
        if "{instruction}" not in settings.query.template or data is None:
            return encoder
        if data.instruction is None:
            raise ValueError("tokenization.query.template has {instruction}; set data.instruction")
        template = settings.query.template.replace("{instruction}", data.instruction)
        query = settings.query.model_copy(update={"template": template})
        return encoder.model_copy(update={"tokenization": settings.model_copy(update={"query": query})})

    @field_validator("stages", "teachers")
    @classmethod
    def check_names(cls, named: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Names are good names of files, and mean nothing else."""
        noun = (info.field_name or "").removesuffix("s")
        for name in named:
            is_reserved = name in RESERVED_NAMES or name.startswith(START_PREFIX)
            if is_reserved or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
                reserved = ", ".join([*sorted(RESERVED_NAMES), f"{START_PREFIX}..."])
                raise ValueError(
                    f"{noun} name {name!r}: use small letters, digits and single dashes, and none of "
                    f"{reserved}"
                )
        return named

    @model_validator(mode="after")
    def check_stages_agree(self) -> "Recipe":
        check_consistency(self)
        return self

    @classmethod
    def key_hint(cls, key: str) -> str:
        return f" (a key of stages: stages.NAME.{key})" if key in keys_of(Stage) else ""

    def teachers_after(self, stage: str) -> dict[str, TrainedTeacher]:
        """The cross-encoders that are trained when `stage` has ended, in their order."""
        return {name: teacher for name, teacher in self.teachers.items() if teacher.after == stage}

    def stage_before(self, name: str) -> str | None:
        """The stage that the recipe lists before stage `name`; None before the first."""
        names = list(self.stages)
        return names[names.index(name) - 1] if name != names[0] else None

    def start_of(self, name: str) -> str | None:
        """The stage with whose result stage `name` starts; None if it starts from other weights."""
        start = self.stages[name].init_from
        if isinstance(start, InitFrom):
            return None if start.is_external else start.stage
        return self.stage_before(name) if start == "previous" else None
