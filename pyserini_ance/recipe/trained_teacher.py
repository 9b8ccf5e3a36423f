"""The cross-encoders that a run trains between its stages."""

import math
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, PositiveInt, field_validator

from pyserini_ance.recipe.components import Component, Settings, component_of

if TYPE_CHECKING:  # at run time, component packages import the recipe, and component_of imports them by name
    from pyserini_ance.negatives.source import Source
else:
    Source = Component

TRAINED = "teachers."  # before a name: a cross-encoder that the run trains


class TrainedTeacher(Settings):
    """A cross-encoder that the run trains when the stage `after` has ended.

    sentence-transformers trains it on lists of a positive and mined negatives, with BinaryCrossEntropyLoss of
    pairs, positives weighted by the number of negatives. Its negatives are mined with the result of that
    stage. Later stages name it in `teacher: {kind: cross_encoder, model: teachers.NAME}`: retriever and
    cross-encoder take turns, as in AR2 (Zhang et al. 2021, arXiv:2110.03611). The run directory keeps it in
    `teachers/NAME`.
    """

    steps: PositiveInt | None = None
    """The number of optimizer steps; null: one pass over the training queries, or more if lists are short."""
    batch_queries: PositiveInt = 8
    """A step has as many pairs as the whole lists of so many queries; the pairs are shuffled."""
    num_negatives: PositiveInt = 7
    """Negatives of each query, drawn anew in every pass over the queries."""
    learning_rate: float = Field(default=2e-5, gt=0)
    """The learning rate after a warm-up of a tenth of the steps; it then falls to 0."""
    length_tokens: PositiveInt | None = None
    """The maximum length of a pair; null: the retriever's query length plus its document length."""

    after: str
    """The stage whose result mines the negatives."""
    init_from: str = "initial"
    """The initial weights: those of the untrained encoder with a new head (`initial`), those of an earlier
    cross-encoder of the run (`teachers.NAME`), or a folder or hub name: of an encoder, which gets a new head,
    or of a cross-encoder."""
    negatives: tuple[Annotated[Source, component_of("negatives")], ...] = Field(min_length=1)
    """The sources that are mined; a list's negatives are drawn from the candidates of all of them. Queries
    without a candidate are left out."""

    names_or_paths = frozenset({"init_from"})

    def steps_over(self, queries: int) -> int:
        """The number of steps; without `steps`, those of one pass over so many queries."""
        return self.steps or math.ceil(queries / self.batch_queries)

    @field_validator("negatives")
    @classmethod
    def check_negatives(cls, negatives: "tuple[Source, ...]") -> "tuple[Source, ...]":
        for source in negatives:
            uses_previous = any(leaf.uses_previous_tables for leaf in source.components)
            if source.live or not source.is_mined or uses_previous:
                cure = "use ann, lookahead, bm25, ranking or a mix of them"
                raise ValueError(f"`{source.kind}` is not mined from the result of a stage; {cure}")
            if source.draw_settings:
                raise ValueError(
                    f"{source.draw_settings[0]} of `{source.kind}` has no effect here: a list's negatives "
                    "are drawn at random, `num_negatives` of the teacher; remove it"
                )
        return negatives
