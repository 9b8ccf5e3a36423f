"""A joint split: the queries of several splits of one collection as those of one, to be trained on together."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pyserini_ance.data.collection import Collection, Qrels, Split, Texts


def with_joint(collection: Collection, name: str, parts: Sequence[str]) -> Collection:
    """`collection` with the splits `parts` joined to one more, `name`; as it is where there is but one.

    Raises ValueError for a split that is not there, and when one is called `name` already.
    """
    if len(parts) == 1:
        return collection
    if name in collection.splits:
        raise ValueError(f"split {name!r} has the name that {', '.join(parts)} have when they are joined; rename it under `data`")
    joined = join(name, [collection.split(part) for part in parts])
    return replace(collection, splits={**collection.splits, name: joined})


def join(name: str, parts: Sequence[Split]) -> Split:
    """The queries of the parts, one part after the other, with the fields that all of them have.

    Ids stay as they are where no two parts share one. Else each has its part's name before it (`nq:17`): DPR numbers the
    questions of every set from 0.
    """
    ids = [id for part in parts for id in part.queries.ids]
    if len(set(ids)) < len(ids):
        ids = [f"{part.name}:{id}" for part in parts for id in part.queries.ids]
    shared = [column for column in parts[0].queries.columns if all(column in part.queries.columns for part in parts)]
    columns = {column: [value for part in parts for value in part.queries.columns[column]] for column in shared}
    return Split(name, Texts(ids, columns), _qrels([part.qrels for part in parts]))


def _qrels(parts: Sequence[Qrels]) -> Qrels:
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    rows, grades = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "grades"))
    return Qrels.of(np.repeat(np.arange(len(counts)), counts), rows, grades, len(counts), parts[0].threshold)


def rows_of_parts(parts: Sequence[Split]) -> tuple[slice, ...]:
    """The rows that each part's queries have among those of all."""
    ends = np.cumsum([0, *(len(part.queries) for part in parts)]).tolist()
    return tuple(slice(start, end) for start, end in zip(ends[:-1], ends[1:], strict=True))
