"""A dev split that is cut from the training queries, for data without one."""

import hashlib
import logging
from typing import Self

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt, model_validator

from pyserini_ance.data.collection import Split
from pyserini_ance.recipe.components import Settings

log = logging.getLogger(__name__)


class HoldOut(Settings):
    """Judged queries that are cut from one split and become a split of their own.

    They are the queries with the smallest hashes of their ids. The choice therefore depends neither on the
    order of the file nor on the machine, and a query that is added to the data moves at most one other query
    between the two splits.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    queries: PositiveInt
    """The number of queries that are cut."""
    source: str = Field("train", alias="from", min_length=1)
    """The split that they are cut from."""
    split: str = Field("dev", min_length=1)
    """The name of the new split; a split of this name that the data has is not read."""

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
        # "0 " was the default of a seed: the choice stays that of runs with it.
        hashes = [hashlib.sha256(f"0 {id}".encode()).digest() for id in whole.queries.ids]
        by_hash = np.array(sorted(range(len(hashes)), key=hashes.__getitem__))
        rows = {self.source: np.sort(by_hash[self.queries :]), self.split: np.sort(by_hash[: self.queries])}
        of = f"{self.queries} of {len(whole.queries)} queries of split {self.source}"
        log.info("held out %s as %s", of, self.split)
        new = {}
        for name, split in splits.items():
            for part in (self.source, self.split) if name == self.source else ():
                new[part] = Split(part, whole.queries.subset(rows[part]), whole.qrels.subset(rows[part]))
            new.setdefault(name, split)
        return new
