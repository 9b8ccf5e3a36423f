"""When new negatives are mined and dev is evaluated during a stage, which process does it, and when results
are adopted."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from pyserini_ance.recipe.components import Settings, expected
from pyserini_ance.recipe.splits import Splits


class ProductSettings(Settings):
    """A result that is made from a checkpoint every `every_steps` steps: negatives, or a dev score."""

    every_steps: PositiveInt
    """Steps between the checkpoints that it is made from."""
    mode: Literal["sync", "async"] | None = "sync"
    """Made by the training processes, which wait for it (`sync`), or by a refresher process (`async`)."""
    adopt: Annotated[
        PositiveInt | Literal["when_ready"] | None, expected("`when_ready` or a number of steps from 1")
    ] = None
    """With `mode: async`, when the result is adopted: at the first step that finds it ready (`when_ready`),
    or exactly this many steps after its checkpoint, which gives the same weights in every run; null: after
    `every_steps` steps; of `evaluate`: as `refresh.adopt`, if that is set."""

    @property
    def lag_steps(self) -> int | None:
        """Steps from the checkpoint to the adoption of its result; None: as soon as the result is ready."""
        if self.mode == "sync":
            return 0
        if self.adopt == "when_ready":
            return None
        return self.adopt or self.every_steps

    @property
    def staleness_steps(self) -> int | None:
        """The greatest age, in steps, of the checkpoint whose product a step uses; None: unbounded."""
        return None

    @model_validator(mode="after")
    def check_sync_adopts_at_once(self) -> "ProductSettings":
        if self.mode == "sync" and self.adopt is not None:
            raise ValueError("mode: sync adopts at once; remove `adopt`, or set mode: async")
        return self


class CorrectedEncoding(Settings):
    """Which documents a refresh encodes; the vectors of the others are corrected.

    The first refresh encodes all documents. A later one fits a linear map to the present model's vectors on
    the documents that it encodes (corrector networks, Monath et al. 2024, arXiv:2409.01890), from their older
    vectors and the mean of their tokens' present embeddings. A fifth of these documents first measures such a
    map. Only mining sees corrected vectors: an evaluation encodes all that it searches. Set one of `sample`
    and `part`.
    """

    sample: float | None = Field(default=None, gt=0, lt=1)
    """The share of the documents (MaxP: passages), drawn at random, that a refresh encodes. It corrects the
    vectors of the last refresh that encoded all documents."""
    part: float | None = Field(default=None, gt=0, lt=1)
    """The share that a refresh encodes: the oldest, and for a fifth of the share any others, which measure.
    It corrects the vectors of the last refresh: encoded ones, and corrected ones once more."""
    min_recall: float = Field(default=0.3, ge=0, le=1)
    """The least measured recall of the exact top `top_k`; below it a refresh encodes all documents, and later
    ones start from their vectors."""

    @property
    def share(self) -> float:
        return self.sample or self.part or 0.0

    @model_validator(mode="after")
    def check_one_share(self) -> "CorrectedEncoding":
        if (self.sample is None) == (self.part is None):
            raise ValueError("encode needs one of the keys `sample` and `part`, such as encode: {part: 0.25}")
        return self


class Refresh(ProductSettings):
    """When the corpus is encoded and mined again with the model in training: at step 0 and every
    `every_steps` steps."""

    mode: Literal["sync", "async"] = "sync"
    """Mined by the training processes, which wait for it (`sync`), or by a refresher process (`async`)."""
    initial_model: Literal["current", "previous_stage"] = "current"
    """The model that mines the tables of step 0: the stage's own initial weights, or the result of the
    previous stage (episodes that restart from the initial model: Sun et al. 2022, ANCE-Tele)."""
    query_chunks: PositiveInt = 1
    """Mine for one of this many equal chunks of the queries at a time, in turn; steps draw from the adopted
    chunk alone (5 in microsoft/ANCE, `--ann_chunk_factor`). Merged splits are chunked one by one. 1: all
    queries, as in the paper."""

    positives_top_k: PositiveInt | None = None
    """At each mining, a question that the judgments give no positive gets the first of this many retrieved
    documents that contains one of its answers, as in the code of ANCE-Tele (200); a question without such a
    document does not train until the next mining. Null: only questions with judgments train."""
    encode: CorrectedEncoding | None = None
    """Encode some of the documents and correct the vectors of the others; null: encode all of them."""
    restart_queries: bool = False
    """Whether the order of queries begins anew, in another order, with every adoption of new negatives, as
    microsoft/ANCE reads each new file from its beginning; false: the epoch goes on."""

    @model_validator(mode="after")
    def check_vectors_to_correct(self) -> "Refresh":
        if self.encode and self.lag_steps is None:
            cure = "set `adopt` to a number of steps"
            raise ValueError(
                f"encode corrects vectors of earlier refreshes, which adopt: when_ready skips; {cure}"
            )
        if self.encode and self.initial_model == "previous_stage":
            raise ValueError(
                "encode corrects the vectors of step 0, which initial_model: previous_stage makes with "
                "another model; remove one of the keys"
            )
        return self

    def chunk(self, step: int, queries: int) -> slice | None:
        """The rows, out of `queries`, that the checkpoint before step `step` is mined for; None: all rows."""
        if self.query_chunks == 1:
            return None
        number = step // self.every_steps % self.query_chunks
        return slice(queries * number // self.query_chunks, queries * (number + 1) // self.query_chunks)

    @property
    def staleness_steps(self) -> int:
        """The greatest age, in steps, of the checkpoint whose negatives a step trains on; training waits for
        newer ones."""
        return self.every_steps + (self.every_steps if self.lag_steps is None else self.lag_steps - 1)


class Evaluate(ProductSettings):
    """When checkpoints are evaluated on the dev split during training, and what their scores decide.

    The evaluation uses the vectors of the stage's `refresh` where it has the same checkpoint.
    """

    mode: Literal["sync", "async"] | None = None
    """Evaluated by the training processes (`sync`) or by a refresher process (`async`); null: as in
    `refresh`."""
    split: Splits = ("dev",)
    """The split, or several, of which the mean score decides."""
    measure: str = "RR@10"
    """The measure, by its ir-measures name; without a cutoff, such as AP, that of the first 100 documents."""
    queries: PositiveInt | None = None
    """Evaluate on this many queries of each split; null: all."""
    sample_documents: PositiveInt | None = None
    """Evaluate on a sample of this many documents, which includes all judged ones; null: all documents."""
    keep_best: bool = True
    """Whether the stage's result is its best checkpoint instead of its last. The stage's initial weights are
    evaluated too, before the first step: a stage that never improves returns its start."""
