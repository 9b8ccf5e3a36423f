"""A term of the loss: its anchors, negatives, loss and teacher."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from pyserini_ance.recipe.components import Component, Settings, component_of, expected

if TYPE_CHECKING:  # at run time, component packages import the recipe, and component_of imports them by name
    from pyserini_ance.negatives.source import Source
    from pyserini_ance.negatives.teachers.base import Teacher
    from pyserini_ance.trainer.losses.base import DistillationLoss, Loss
    from pyserini_ance.trainer.losses.embed_distill import EmbedDistill
    from pyserini_ance.trainer.regularizers import Regularizer
else:
    Source = Teacher = Loss = DistillationLoss = EmbedDistill = Regularizer = Component

# A list of dimensions is the weight 1 for each.
Dimensions = Annotated[
    dict[PositiveInt, PositiveFloat],
    Field(min_length=1),
    BeforeValidator(
        lambda value: dict.fromkeys(map(str, value), 1.0) if isinstance(value, list | tuple) else value
    ),
    expected("numbers of dimensions, such as [384, 128], or a weight for each, such as {384: 1, 128: 0.5}"),
]


class Term(Settings):
    """One summand of the loss: each anchor's positive against negatives.

    With `anchor: document`, the positive drawn for each query is the anchor, the query is its positive, and
    other queries are the negatives (the dual term of Li et al. 2021, DANCE). A term with a `regularizer` has
    neither negatives nor a contrastive loss: it constrains the vectors of all anchors and positives of the
    step.
    """

    anchor: Literal["query", "document"] = "query"
    """The side that is trained to rank the other one."""
    negatives: tuple[Annotated[Source, component_of("negatives")], ...] = ()
    """The sources that each anchor's negatives are drawn from."""
    negatives_from: str | None = None
    """Another term of the stage, whose negatives this term has in each step instead of its own."""
    in_batch_negatives: bool = False
    """Whether all other texts of the batch are negatives too, across all processes."""
    same_side_negatives: bool = False
    """Whether, beside `in_batch_negatives`, the batch's other anchors are negatives of an anchor, and other
    anchors' positives those of its positive (Zhang et al. 2025, arXiv:2506.05176, Eq. 1)."""
    num_hardest: PositiveInt | None = None
    """Keep only this many negatives of each anchor, those with the highest scores; null keeps all."""
    false_negative_margin: float | None = None
    """Ignore, in each step, the negatives that score above the anchor's best positive by more than this, in
    dot products of the model as it is, before `scale`; 0.1 in Qwen3-Embedding, whose vectors have length 1.
    Below 0: also those that score a little less than the positive. Null ignores none."""
    loss: Annotated[Loss | DistillationLoss | EmbedDistill, component_of("loss")] = Field(
        default={"kind": "nll"}, validate_default=True
    )
    """The loss of each anchor, given the scores of its positives and negatives."""
    teacher: Annotated[Teacher, component_of("teacher")] | None = None
    """Whose scores of an anchor's candidates the retriever learns; for the losses `kl`,
    `margin_mse` and `soft_bce`. With `embed_distill`, whose vectors."""
    regularizer: Annotated[Regularizer, component_of("regularizer")] | None = None
    """A loss on the vectors themselves, instead of `negatives` and `loss`."""
    dimensions: Dimensions | None = None
    """Matryoshka: the loss is the sum of the losses of vectors cut to their first numbers, so many, such as
    `[384, 128, 64]`, or with a weight for each, `{384: 1, 64: 0.5}`. Null: of whole vectors alone."""
    weight: float = Field(1.0, ge=0)
    """The factor of this term in the sum of all terms."""

    @property
    def components(self) -> "tuple[Source, ...]":
        """All sources of negatives; a mix is replaced by the sources that it mixes."""
        return tuple(leaf for source in self.negatives for leaf in source.components)

    @property
    def distilled_side(self) -> Literal["query", "document"] | None:
        """The side whose vectors follow a teacher's vectors (`embed_distill`); None with other losses."""
        texts = getattr(self.loss, "texts", None)
        if texts is None:
            return None
        return "query" if (texts == "anchors") == (self.anchor == "query") else "document"

    @model_validator(mode="before")
    @classmethod
    def set_in_batch_for_regularizer(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("regularizer"):
            return {"in_batch_negatives": True, **values}
        return values

    @model_validator(mode="after")
    def check_agreement(self) -> "Term":
        if self.regularizer is not None and (
            self.negatives
            or self.negatives_from
            or self.num_hardest
            or self.same_side_negatives
            or self.false_negative_margin is not None
            or not self.in_batch_negatives
            or self.loss.kind != "nll"
            or self.loss.model_dump(exclude_defaults=True, exclude={"kind"})
        ):
            raise ValueError(
                "a regularizer applies to all anchors and positives of the step; give it a term of its own "
                "without loss, negatives, negatives_from, in_batch_negatives, same_side_negatives, "
                "num_hardest, false_negative_margin"
            )
        if self.negatives and self.negatives_from:
            raise ValueError("a term has negatives of its own or those of another term; keep one of the keys")
        if not (self.in_batch_negatives or self.negatives or self.negatives_from or self.distilled_side):
            cure = "list a source under `negatives:`, or set in_batch_negatives: true"
            raise ValueError(f"a term needs negatives: {cure}")
        if self.same_side_negatives and not self.in_batch_negatives:
            raise ValueError("same_side_negatives is set without in_batch_negatives; set both, or none")
        needs_teacher = getattr(self.loss, "needs_teacher", False)  # a class of the user may lack it
        if needs_teacher != (self.teacher is not None):
            raise ValueError(
                f"loss `{self.loss.kind}` follows a teacher's scores; name one: `teacher: {{kind: hybrid}}`"
                if needs_teacher
                else f"loss `{self.loss.kind}` uses no teacher; set loss: kl, margin_mse or soft_bce"
            )
        asked = [self.teacher, *(one for leaf in self.components for one in getattr(leaf, "filters", ()))]
        for one in asked:  # and those that they ask, one after the other
            asked += getattr(one, "parts", ())
        if self.anchor == "document" and "bm25" in {getattr(one, "kind", "") for one in asked}:
            cure = "name another teacher for a term with anchor: document, such as student or cross_encoder"
            raise ValueError(f"BM25's scores of different queries cannot be compared; {cure}")
        if self.anchor == "document" and any(getattr(source, "rolling", False) for source in self.negatives):
            raise ValueError("rolling: true counts the draws of a query; remove it where anchor: document")
        if self.distilled_side and not hasattr(self.teacher, "vectors"):
            cure = "name an encoder: `teacher: {kind: encoder, encoder: RUN}`"
            raise ValueError(f"loss `{self.loss.kind}` follows a teacher's vectors; {cure}")
        is_alone = self.distilled_side == self.anchor and (self.negatives or self.negatives_from)
        if self.distilled_side and (self.num_hardest or self.dimensions or is_alone):
            cure = "remove num_hardest and dimensions, and with texts: anchors the negatives"
            raise ValueError(f"loss `{self.loss.kind}` compares whole vectors of all its `texts`; {cure}")
        if needs_teacher and self.false_negative_margin is not None:
            given = f"false_negative_margin is {self.false_negative_margin}, but the teacher"
            raise ValueError(f"{given} says how relevant each candidate is, which it would hide; remove it")
        if needs_teacher and self.in_batch_negatives:
            cure = "give the in-batch negatives a term of their own, and this one `negatives_from: THAT_TERM`"
            raise ValueError(f"a teacher scores an anchor's own candidates alone; {cure}")
        return self
