"""A dev split that is cut from the training queries, for data without one."""

import hashlib
import logging
from typing import Any, Self

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt, model_validator

from pyserini_ance.data.collection import Split
from pyserini_ance.recipe.components import Settings

log = logging.getLogger(__name__)


class HoldOut(Settings):
    """Judged queries that are cut from one split and become a split of their own.

    They are the queries with the smallest hashes of the seed and their ids. The choice therefore depends
    neither on the order of the file nor on the machine, and a query that is added to the data moves at most
    one other query between the two splits.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    queries: PositiveInt
    """The number of queries that are cut."""
    source: str = Field("train", alias="from", min_length=1)
    """The split that they are cut from."""
    split: str = Field("dev", min_length=1)
    """The name of the new split; a split of this name that the data has is not read."""
    seed: int = 0
    """The seed of the choice."""

    @model_validator(mode="before")
    @classmethod
    def _check_is_one(cls, values: Any) -> Any:
        if isinstance(values, list | tuple):
            raise ValueError(
                "hold_out cuts one split; expected a mapping such as {queries: 200}. To cut two, cut "
                "the test queries first (split: test), write the data with `pyserini-ance convert RECIPE "
                "--to beir --output FOLDER`, and cut the dev queries from FOLDER"
            )
        return values

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if self.source == self.split:
            raise ValueError(
                f"hold_out: from and split are both {self.split!r}; expected two names; rename `split`"
            )
        return self

    def cut(self, splits: dict[str, Split]) -> dict[str, Split]:
        """`splits` with the queries cut from one of them, and the new split after it.

        Raises ValueError if that split does not exist, has no judgments or has too few queries.
        """
        if self.source not in splits:
            raise ValueError(
                f"data.hold_out.from is {self.source!r}, but `data` has no such split; splits: "
                f"{', '.join(splits) or 'none'}; set it to one of them"
            )
        whole = splits[self.source]
        if not whole.is_judged:
            raise ValueError(
                f"data.hold_out.from is {self.source!r}, a split without judgments, which nothing can be "
                "evaluated on; give it `qrels`, or cut from another split"
            )
        if self.queries >= len(whole.queries):
            raise ValueError(
                f"data.hold_out.queries is {self.queries}, but split {self.source!r} has only "
                f"{len(whole.queries)} queries with a relevant document; expected fewer; lower it"
            )
        is_cut = self._is_cut(whole)
        log.info(
            "held out %d of %d queries of split %s as %s",
            self.queries,
            len(whole.queries),
            self.source,
            self.split,
        )
        new = {}
        for name, split in splits.items():
            if name == self.source:
                new[name] = _subset(split, name, np.flatnonzero(~is_cut))
                new[self.split] = _subset(split, self.split, np.flatnonzero(is_cut))
            else:
                new[name] = split
        return new

    def _is_cut(self, split: Split) -> np.ndarray:
        """(queries,) bool."""
        hashes = [hashlib.sha256(f"{self.seed} {id}".encode()).digest() for id in split.queries.ids]
        chosen = sorted(range(len(hashes)), key=hashes.__getitem__)[: self.queries]
        is_cut = np.zeros(len(hashes), bool)
        is_cut[chosen] = True
        return is_cut


def _subset(split: Split, name: str, rows: np.ndarray) -> Split:
    return Split(name, split.queries.subset(rows), split.qrels.subset(rows))
