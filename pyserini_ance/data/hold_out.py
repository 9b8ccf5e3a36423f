"""A dev split that is cut from the training queries, for data without one."""

import hashlib
import logging
from collections import defaultdict

import numpy as np

from pyserini_ance.data.collection import Split
from pyserini_ance.data.same_texts import text_key
from pyserini_ance.data.texts import Texts

log = logging.getLogger(__name__)


def cut_dev(splits: dict[str, Split], count: int, documents: Texts) -> dict[str, Split]:
    """`splits` with `count` judged queries cut from `train`, and the split `dev` of them after it.

    Queries with the same relevant document stay together, and so do those with the same text, but for case
    and blanks: dev has no training query, and asks for documents that no training query asks for. Whole
    groups are cut, as many as `count` has room for. Of several relevant documents, that with the smallest
    hash of its id counts, and groups are taken in the order of these hashes: the choice depends neither on
    the order of the files nor on the machine. Raises ValueError if `train` does not exist, has no judgments
    or too few queries, and if each group has more than `count` queries.
    """
    whole = splits.get("train")
    judged = len(whole.qrels.positives.anchors) if whole else 0
    if whole is None or count >= judged:
        raise ValueError(
            f"data.hold_out is {count}, but split 'train' has {judged} queries with a relevant document; "
            f"splits: {', '.join(splits) or 'none'}; lower it, or name the split that it is cut from 'train'"
        )
    of_documents: dict[bytes, list[int]] = defaultdict(list)
    keys_of_texts: dict[str, set[bytes]] = defaultdict(set)
    for row in whole.qrels.positives.anchors.tolist():
        relevant = documents.same.first_of(whole.qrels.relevant(row)).tolist()
        key = min(hashlib.sha256(f"0 {documents.ids[one]}".encode()).digest() for one in relevant)
        of_documents[key].append(row)
        keys_of_texts[text_key(whole.queries.columns["text"][row])].add(key)
    joined: dict[bytes, bytes] = {}  # a key, and a smaller one of the same group

    def smallest(key: bytes) -> bytes:
        while key in joined:
            key = joined[key]
        return key

    for keys in keys_of_texts.values():
        first, *others = sorted({smallest(key) for key in keys})
        joined |= dict.fromkeys(others, first)
    groups: dict[bytes, list[int]] = defaultdict(list)
    for key, rows_of_key in of_documents.items():
        groups[smallest(key)] += rows_of_key
    held_out: list[int] = []
    for key in sorted(groups):
        if len(held_out) + len(groups[key]) <= count:
            held_out += groups[key]
    if not held_out:
        fewest = min(len(group) for group in groups.values())
        raise ValueError(
            f"data.hold_out is {count}, but each document or text of split 'train' has {fewest} queries or "
            f"more, which stay together; set it to {fewest} or more"
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
