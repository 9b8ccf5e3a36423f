"""Splits: the names of one or several sets of queries, to train on together, or to measure on each."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, field_validator, model_serializer, model_validator

from pyserini_ance.recipe.parts import Settings


def read_names(value: Any) -> tuple[str, ...]:
    """A name, or a list of different names. One message at the key itself, not one for each type that it might be of."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError("expected the name of a split, or a list of names")
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise ValueError(f"split {twice[0]!r} is listed twice; list each once")
    return tuple(names)


def _written(names: tuple[str, ...]) -> str | list[str]:
    return names[0] if len(names) == 1 else list(names)


Splits = Annotated[tuple[str, ...], BeforeValidator(read_names), PlainSerializer(_written, return_type=str | list)]


class TrainSplit(Settings):
    """What is trained on: a split, or several `splits` of one collection, joined.

    `mixing: concatenated` takes the queries of all for one set: an epoch has each of them once, in one order, so that a split has
    its share by size (Karpukhin et al. 2020, DPR, and Xiong et al. 2021, ANCE: "multi"). With `even` each step draws as many
    queries of each split, in an order of its own: small splits are repeated more often.
    """

    splits: Splits
    mixing: Literal["concatenated", "even"] = "concatenated"

    @property
    def name(self) -> str:
        """That of the split that all are joined to; of one alone, its own."""
        return "+".join(self.splits)

    @field_validator("splits")
    @classmethod
    def names_fit_ids(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """A name may come before a query's id, which is one word, and must be told from it."""
        if len(names) > 1 and (bad := [name for name in names if ":" in name or name.split() != [name]]):
            raise ValueError(f"split {bad[0]!r}: to be joined with others, a split needs a name without blanks and colons; rename it under `data`")
        return names

    @model_validator(mode="after")
    def mixes_several(self):
        if self.mixing == "even" and len(self.splits) == 1:
            raise ValueError(f"mixing: even, but {self.splits[0]!r} is the only split; list more, or leave mixing out")
        return self

    @model_serializer(mode="wrap")
    def as_written(self, write) -> Any:
        return write(self) if len(self.splits) > 1 else self.name


def read_train_split(value: Any) -> Any:
    """One message at the key itself, not one for each type that it might be of."""
    if isinstance(value, str) and value:
        return TrainSplit(splits=value)
    if not isinstance(value, dict | TrainSplit):
        raise ValueError("expected the name of a split, or `{splits: [NAME, NAME], mixing: concatenated | even}`")
    return value
