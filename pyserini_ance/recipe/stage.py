"""A stage: terms of the loss, how weights are updated, when negatives are mined. Stages define a method."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from pyserini_ance.recipe.components import Settings, expected
from pyserini_ance.recipe.init_from import EXPECTED, InitFrom
from pyserini_ance.recipe.refresh_settings import Evaluate, Refresh
from pyserini_ance.recipe.splits import Splits
from pyserini_ance.recipe.term import Term

if TYPE_CHECKING:
    from pyserini_ance.negatives.source import Source
    from pyserini_ance.negatives.teachers.base import Teacher


class Optimizer(Settings):
    """AdamW, or LAMB as in the papers (trainer/optim.py); their code runs LAMB with `weight_decay: 0`."""

    kind: Literal["adamw", "adamw_8bit", "lamb"] = "adamw"
    """The algorithm; `adamw_8bit` is torchao's (extra `torchao`), which compiles its step at first: the two
    moments of a weight take two bytes, not eight."""
    learning_rate: float = Field(gt=0)
    """The peak of the learning rate schedule."""
    weight_decay: float = Field(default=0.01, ge=0)
    """The weight decay; biases and layer norms are exempt."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients with a greater total norm are scaled down to it."""


class LrSchedule(Settings):
    """The learning rate of a stage: it rises from 0 during the warm-up, then falls to 0 at the end of the
    schedule.

    With `kind: constant` it does not fall. The schedule may be longer than the stage, so that several stages
    share one.
    """

    kind: Literal["linear", "cosine", "constant"] = "linear"
    """The shape of the decay."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps in which the rate rises linearly from 0."""
    total_steps: PositiveInt | None = None
    """Length of the schedule; null: up to the end of the stage."""
    offset_steps: int = Field(default=0, ge=0)
    """Steps of the schedule that earlier stages have used. The stage that this one starts from must end with
    its last checkpoint (`evaluate.keep_best: false`)."""


class Lora(Settings):
    """A pair of matrices of rank `r` beside each of a Transformer's linear layers, whose own weights stay."""

    r: PositiveInt = 16
    """The rank."""
    alpha: PositiveInt = 32
    """What the pairs give is multiplied by `alpha / r`."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """The probability of dropout before a pair."""
    target: Annotated[
        Literal["all-linear"] | Annotated[tuple[str, ...], Field(min_length=1)],
        expected("all-linear, or a list of names such as [q_proj]"),
    ] = "all-linear"
    """The names of the linear layers, such as `[q_proj, v_proj]`; `all-linear`: all but a pooler's."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """What two stages with the same adapters have in common."""
        return self.r, self.alpha, self.target


class Stage(Settings):
    """A sequence of optimizer steps with one objective.

    A step draws `batch_queries` queries with one, or all, of their positives. Each query occurs once an
    epoch, in a random order. Checkpoints are saved where negatives are mined, where dev is evaluated, and
    every `save_every_steps`.
    """

    trainable: Literal["both", "query_tower"] = "both"
    """The towers that train; `query_tower` unties the towers and freezes the document tower, and with it all
    document vectors."""
    lora: Lora | None = None
    """Adapters that train in place of the Transformer's weights (extra `peft`); checkpoints hold them alone.
    null: all weights train."""
    gradient_checkpointing: bool = False
    """Whether the backward pass computes layers again, which takes a third more time and far less memory."""
    init_from: Annotated[Literal["initial", "previous"] | InitFrom, expected(EXPECTED, InitFrom)] = "previous"
    """The initial weights: the untrained encoder (`initial`), the result of the previous stage (`previous`;
    in the first stage the untrained encoder), or a checkpoint."""
    steps: PositiveInt
    """The number of optimizer steps."""
    keep_optimizer: bool = False
    """Whether the optimizer goes on with the moments of the stage it starts from."""
    train_split: Splits | None = None
    """Those of the recipe's `train_split` whose queries the steps draw; null: all. Negatives are mined for
    all of them."""
    batch_queries: PositiveInt
    """Queries in a step, over all processes."""
    repeats_per_query: PositiveInt = 1
    """How many times in a row each query occurs in an epoch, each time with a positive and negatives of its
    own draw; 20 in microsoft/ANCE, whose batches of 64 hold 4 to 8 queries."""
    chunk_queries: PositiveInt | None = None
    """Queries that a process holds in memory at once; draw and, apart from dropout's masks, gradient do not
    depend on it.

    Terms without in-batch negatives accumulate gradients, others use GradCache. Null: the whole batch, or
    without in-batch negatives as many as fit `encoding.tokens_per_batch`.
    """
    positives: Literal["first", "random", "all", "last"] = "random"
    """The positives of a query in a step: the first judged, one at random, or all; or the last judged, as
    microsoft/ANCE, which draws the others as negatives: training then knows the last alone, in all stages."""
    terms: dict[str, Term] = Field(min_length=1)
    """The summands of the loss, by name."""
    optimizer: Optimizer
    """The optimizer."""
    lr_schedule: LrSchedule = LrSchedule()
    """The learning rate schedule."""
    refresh: Refresh | None = None
    """When negatives are mined again with the model in training; required by sources that are mined with it.
    """
    evaluate: Evaluate | None = None
    """When the dev split is evaluated; null: never."""
    save_every_steps: PositiveInt | None = None
    """Steps between additional checkpoints; null: none."""

    def drawing_term(self, name: str) -> str:
        """The name of the term whose negatives the term `name` has: itself, unless it says another."""
        return self.terms[name].negatives_from or name

    @property
    def teachers(self) -> "dict[str, Teacher]":
        """The teachers, by the names of their terms."""
        return {name: term.teacher for name, term in self.terms.items() if term.teacher is not None}

    @property
    def sources(self) -> "tuple[Source, ...]":
        """The sources of negatives of all terms."""
        return tuple(source for term in self.terms.values() for source in term.negatives)

    @property
    def components(self) -> "tuple[Source, ...]":
        """The sources of all terms; a mix is replaced by the sources that it mixes."""
        return tuple(leaf for term in self.terms.values() for leaf in term.components)

    @property
    def ranks_training_queries(self) -> bool:
        """Whether each refresh ranks documents for all training queries, as measuring forgetting needs."""
        query_terms = (term for term in self.terms.values() if term.anchor == "query")
        return self.mines_all_queries and any(
            leaf.scores_comparable and leaf.is_dynamic for term in query_terms for leaf in term.components
        )

    @property
    def mines_all_queries(self) -> bool:
        """Whether the tables of each refresh have all training queries."""
        refresh = self.effective_refresh
        leaves_out = any(getattr(source, "min_candidates", 0) for source in self.sources)
        return refresh.query_chunks == 1 and refresh.positives_top_k is None and not leaves_out

    @property
    def horizon_steps(self) -> int:
        """The step of the learning rate schedule at which the rate reaches 0."""
        schedule = self.lr_schedule
        return schedule.total_steps or schedule.offset_steps + self.steps

    @property
    def starts_from_checkpoint(self) -> bool:
        """Whether the initial weights were made before this run."""
        return isinstance(self.init_from, InitFrom) and self.init_from.is_external

    @property
    def effective_refresh(self) -> Refresh:
        """`refresh`, or for a stage without one: tables are mined once, in sync."""
        return self.refresh or Refresh(every_steps=self.steps)

    @property
    def effective_evaluate(self) -> Evaluate | None:
        """`evaluate`, with `mode` and `adopt` filled in from `refresh` where it leaves them open."""
        if self.evaluate is None:
            return None
        mode = self.evaluate.mode or self.effective_refresh.mode
        adopt = self.evaluate.adopt or (self.effective_refresh.adopt if mode == "async" else None)
        return self.evaluate.model_copy(update={"mode": mode, "adopt": adopt})

    @property
    def uses_previous_tables(self) -> bool:
        """Whether a source starts from the negatives with which the previous stage ended."""
        return any(leaf.uses_previous_tables for leaf in self.components)

    @property
    def mines_with_previous(self) -> bool:
        """Whether the first tables are mined with the result of the previous stage."""
        return self.refresh is not None and self.refresh.initial_model == "previous_stage"

    def refresh_is_due(self, step: int) -> bool:
        """Whether the checkpoint before step `step` (from 0) is mined with; false if the stage ends before
        its tables would be adopted."""
        return (
            self.refresh is not None
            and step % self.refresh.every_steps == 0
            and (step == 0 or step + (self.refresh.lag_steps or 0) < self.steps)
        )

    def encodes_all_documents(self, step: int) -> bool:
        """Whether dev uses the vectors of all documents by the checkpoint before step `step`, as they are
        made in any case: for its tables, or once for a document tower that never changes. Tables do not count
        if newer ones may replace them, other weights mine them, or training waits for dev alone."""
        if self.trainable == "query_tower":
            return True
        refresh, evaluate = self.effective_refresh, self.effective_evaluate
        certain = refresh.encode is None if step else refresh.initial_model == "current"
        waits = refresh.mode == "async" and evaluate is not None and evaluate.mode == "sync"
        return self.refresh_is_due(step) and refresh.lag_steps is not None and certain and not waits

    def evaluation_is_due(self, step: int) -> bool:
        """Whether the checkpoint before step `step` (from 0) is evaluated on dev; at 0, that is the start."""
        if self.evaluate is None:
            return False
        if step == 0:
            return self.evaluate.keep_best
        return step == self.steps or step % self.evaluate.every_steps == 0

    def checkpoint_is_due(self, step: int) -> bool:
        """Whether the weights before step `step` (from 0) are saved, also without an interruption."""
        every = self.save_every_steps
        is_saved = step == self.steps or bool(step and every and step % every == 0)
        return is_saved or self.refresh_is_due(step) or self.evaluation_is_due(step)

    @model_validator(mode="after")
    def check_terms(self) -> "Stage":
        for name, term in self.terms.items():
            if "/" in name:
                raise ValueError(f"terms: {name!r}: files are named after terms; rename it without a slash")
            drawing = self.terms.get(term.negatives_from or name)
            if drawing is None or (drawing is not term and not drawing.negatives):
                others = ", ".join(other for other, one in self.terms.items() if one.negatives) or "none"
                raise ValueError(
                    f"terms.{name}.negatives_from is {term.negatives_from!r}; terms with negatives: {others}"
                )
            if term.same_side_negatives and any(source.live for source in drawing.negatives):
                raise ValueError(
                    f"terms.{name}: same_side_negatives compares drawn positives, which a `live` source "
                    "replaces; remove it, or give those negatives a term of their own"
                )
            needs_others = not (drawing.negatives or term.regularizer or term.distilled_side)
            if self.batch_queries == 1 and needs_others:
                raise ValueError(
                    f"batch_queries is 1, but terms.{name} has no other negatives than those of the other "
                    "queries in the batch: nothing would be trained; raise batch_queries, or list a source "
                    f"under terms.{name}.negatives"
                )
            if drawing.anchor != term.anchor:
                raise ValueError(
                    f"terms.{name}: its anchors are of side {term.anchor}, those of "
                    f"terms.{term.negatives_from} are not"
                )
            filters = [each for leaf in term.components for each in getattr(leaf, "filters", ())]
            asked = [getattr(each, "teacher", None) for each in (term, *filters)]
            asked += [one for each in asked for one in getattr(each, "teachers", ())]
            has_own = any(getattr(each, "encoder", "") is None for each in asked)
            if has_own and self.trainable != "query_tower":
                raise ValueError(
                    f"a teacher of terms.{name} names no encoder: that is the document tower, which "
                    "changes here; set its `encoder`, or trainable: query_tower"
                )
            if term.distilled_side == "document" and self.trainable == "query_tower":
                raise ValueError(
                    f"terms.{name}.loss trains the vectors of documents, whose tower trainable: query_tower "
                    "freezes; set it to both, or choose the queries as texts"
                )
            untabled = [source.kind for source in drawing.negatives if not source.is_mined]
            if term.teacher and untabled and term.distilled_side is None:
                raise ValueError(
                    f"terms.{name}.teacher scores the candidates of tables, but `{untabled[0]}` has none; "
                    "give those negatives a term of their own"
                )
        return self

    @model_validator(mode="after")
    def check_sources(self) -> "Stage":
        is_dynamic = any(source.is_dynamic for source in self.sources)
        if is_dynamic and self.refresh is None:
            raise ValueError(
                "a source of negatives is mined with the model; set how often: `refresh: {every_steps: N}`"
            )
        if self.refresh is not None and not is_dynamic:
            raise ValueError("`refresh:` is set, but no source of negatives is mined with the model")
        half_dynamic = any(len({one.is_dynamic for one in source.components}) > 1 for source in self.sources)
        if self.refresh and self.refresh.query_chunks > 1 and half_dynamic:
            raise ValueError(
                "refresh.query_chunks: a mix holds a source that is mined once, for all queries; remove "
                "query_chunks, or list that source next to the mix"
            )
        if self.trainable == "query_tower" and self.effective_refresh.encode:
            raise ValueError(
                "refresh.encode corrects vectors of documents, which trainable: query_tower never changes; "
                "remove the key"
            )
        of_queries = (term.components for term in self.terms.values() if term.anchor == "query")
        searches = any(leaf.is_dynamic for leaves in of_queries for leaf in leaves)
        if self.effective_refresh.encode and not searches:
            raise ValueError(
                "refresh.encode corrects vectors of documents, which no term with anchor: query mines; "
                "remove the key"
            )
        if self.trainable != "query_tower" and any(source.live for source in self.sources):
            cure = "set trainable: query_tower, or draw from `ann`"
            raise ValueError(f"a `live` source searches document vectors that do not change; {cure}")
        of_documents = {name: term for name, term in self.terms.items() if term.anchor == "document"}
        if self.positives == "all" and of_documents:
            cure = "use positives: random or first"
            raise ValueError(f"positives: all gives a term with document anchors no single anchor; {cure}")
        mined = [name for name, term in of_documents.items() if any(one.is_mined for one in term.negatives)]
        if mined and any(source.promotes for source in self.sources):
            raise ValueError(
                f"a filter has `then: promote`, but terms.{mined[0]} has documents as anchors, and its "
                "tables lack documents that become relevant; use `then: drop`, or give "
                f"terms.{mined[0]} in-batch or random negatives"
            )
        return self

    @model_validator(mode="after")
    def check_steps(self) -> "Stage":
        offset = self.lr_schedule.offset_steps
        if self.horizon_steps < offset + self.steps:
            key = "lr_schedule.offset_steps + steps" if offset else "steps"
            raise ValueError(
                f"lr_schedule.total_steps {self.horizon_steps} ends before {key} {offset + self.steps}: "
                "the rest would train at rate 0"
            )
        if self.keep_optimizer and (self.init_from == "initial" or self.starts_from_checkpoint):
            raise ValueError("keep_optimizer: the initial weights have no moments; use init_from: previous")
        evaluate = self.effective_evaluate
        if evaluate and evaluate.mode == "sync" and evaluate.adopt:
            cure = "remove it, or set evaluate.mode: async"
            raise ValueError(f"evaluate.adopt is set, but a sync evaluation is adopted at once; {cure}")
        return self
