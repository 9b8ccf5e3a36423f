"""A dev split that is cut from the training queries, for data without one."""

import hashlib
import logging
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from pyserini_ance.data.collection import Split

log = logging.getLogger(__name__)


def cut_dev(splits: dict[str, Split], count: int, document_ids: Sequence[str]) -> dict[str, Split]:
    """`splits` with `count` judged queries cut from `train`, and the split `dev` of them after it.

    Queries with the same relevant document stay together, so that dev asks for documents that no training
    query asks for: whole groups, as many as `count` has room for. Of several relevant documents, that with
    the smallest hash of its id counts, and groups are taken in the order of these hashes: the choice depends
    neither on the order of the files nor on the machine. Raises ValueError if `train` does not exist, has no
    judgments or too few queries, and if each document has more than `count` queries.
    """
    whole = splits.get("train")
    if whole is None or not whole.is_judged or count >= len(whole.queries):
        judged = len(whole.queries) if whole and whole.is_judged else 0
        raise ValueError(
            f"data.hold_out is {count}, but split 'train' has {judged} queries with a relevant document; "
            f"splits: {', '.join(splits) or 'none'}; lower it, or name the split that it is cut from 'train'"
        )
    groups: dict[bytes, list[int]] = defaultdict(list)
    for row in range(len(whole.queries)):
        relevant = [document_ids[document] for document in whole.qrels.relevant(row).tolist()]
        if relevant:
            groups[min(hashlib.sha256(f"0 {id}".encode()).digest() for id in relevant)].append(row)
    held_out: list[int] = []
    for key in sorted(groups):
        if len(held_out) + len(groups[key]) <= count:
            held_out += groups[key]
    if not held_out:
        fewest = min(len(group) for group in groups.values())
        raise ValueError(
            f"data.hold_out is {count}, but each document of split 'train' has {fewest} queries or more, "
            f"which stay together; set it to {fewest} or more"
        )
    rows = {"train": np.setdiff1d(np.arange(len(whole.queries)), held_out), "dev": np.sort(held_out)}
    log.info("held out %d of %d queries of split train as dev", len(held_out), len(whole.queries))
    cut = {
        name: Split(name, whole.queries.subset(own), whole.qrels.subset(own)) for name, own in rows.items()
    }
    new: dict[str, Split] = {}
    for name, split in splits.items():
        new |= cut if name == "train" else {name: split}
    return new
