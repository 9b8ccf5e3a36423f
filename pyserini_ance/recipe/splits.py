"""Names of splits: one set of queries, or several to train on together or to evaluate one by one."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer


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


def check_merged(names: tuple[str, ...]) -> tuple[str, ...]:
    """A merged split may prefix query ids, which are single words, with its name and a colon."""
    if len(names) > 1 and any(":" in name or name.split() != [name] for name in names):
        raise ValueError("merged splits have names without blanks and colons; rename them in `data`")
    return names


MergedSplits = Annotated[Splits, AfterValidator(check_merged)]


def merged_name(splits: tuple[str, ...]) -> str:
    """The name of the merged split; a single split keeps its own."""
    return "+".join(splits)
