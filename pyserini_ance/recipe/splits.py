"""Names of splits: one set of queries, or several to train on together or to evaluate one by one."""

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from pyserini_ance.recipe.components import Settings


def check_split_name(name: str) -> None:
    """Raise ValueError for a name that cannot be part of a file's name, as in `qrels.SPLIT.txt`."""
    if "/" in name:
        raise ValueError(f"split {name!r}: files are named after splits; rename it without a slash")


def read_names(value: Any) -> tuple[str, ...]:
    """A name, or a list of different names. Reports one error at the key instead of one per union member."""
    names = (value,) if isinstance(value, str) else value
    is_list = isinstance(names, list | tuple) and all(isinstance(name, str) and name for name in names)
    if not is_list or not names or len(set(names)) < len(names):
        raise ValueError("expected the name of a split, or a list of different names")
    for name in names:
        check_split_name(name)
    return tuple(names)


Splits = Annotated[
    tuple[str, ...],
    BeforeValidator(read_names),
    PlainSerializer(lambda names: names[0] if len(names) == 1 else list(names), return_type=str | list),
]


class TrainSplit(Settings):
    """The split to train on, or several splits of one collection, merged.

    A name stands for `{splits: NAME}`.
    """

    splits: Splits
    """The split, or the splits to merge: the queries of all are one set, each once an epoch in one order
    (Karpukhin et al. 2020, DPR, and Xiong et al. 2021, ANCE: "multi")."""
    positives: Literal["all", "last"] = "all"
    """The relevant documents that training knows of each query: all, or the last in the judgments, as
    microsoft/ANCE, which then draws the others as negatives."""

    @property
    def name(self) -> str:
        """The name of the merged split; a single split keeps its own."""
        return "+".join(self.splits)

    @model_validator(mode="before")
    @classmethod
    def read_name(cls, value: Any) -> Any:
        return {"splits": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def check_several(self) -> "TrainSplit":
        """A merged split may prefix query ids, which are single words, with its name and a colon."""
        if len(self.splits) > 1 and any(":" in name or name.split() != [name] for name in self.splits):
            raise ValueError("merged splits have names without blanks and colons; rename them in `data`")
        return self

    @model_serializer(mode="wrap")
    def name_alone(self, write: SerializerFunctionWrapHandler) -> Any:
        return write(self) if len(self.splits) > 1 or self.positives != "all" else self.name
