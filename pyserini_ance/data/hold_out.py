"""A dev split that is cut from the training queries, for data without one."""

import hashlib
import logging

import numpy as np

from pyserini_ance.data.collection import Split

log = logging.getLogger(__name__)


def cut_dev(splits: dict[str, Split], count: int) -> dict[str, Split]:
    """`splits` with `count` judged queries cut from `train`, and the split `dev` of them after it.

    They are the queries with the smallest hashes of their ids. The choice therefore depends neither on the
    order of the file nor on the machine, and a query that is added to the data moves at most one other query
    between the two splits. Raises ValueError if `train` does not exist, has no judgments or too few queries.
    """
    whole = splits.get("train")
    if whole is None or not whole.is_judged or count >= len(whole.queries):
        judged = len(whole.queries) if whole and whole.is_judged else 0
        raise ValueError(
            f"data.hold_out is {count}, but split 'train' has {judged} queries with a relevant document; "
            f"splits: {', '.join(splits) or 'none'}; lower it, or name the split that it is cut from 'train'"
        )
    # "0 " was the default of a seed: the choice stays that of runs with it.
    hashes = [hashlib.sha256(f"0 {id}".encode()).digest() for id in whole.queries.ids]
    by_hash = np.array(sorted(range(len(hashes)), key=hashes.__getitem__))
    rows = {"train": np.sort(by_hash[count:]), "dev": np.sort(by_hash[:count])}
    log.info("held out %d of %d queries of split train as dev", count, len(whole.queries))
    cut = {
        name: Split(name, whole.queries.subset(own), whole.qrels.subset(own)) for name, own in rows.items()
    }
    new: dict[str, Split] = {}
    for name, split in splits.items():
        new |= cut if name == "train" else {name: split}
    return new
