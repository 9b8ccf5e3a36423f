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
    and blanks. Of several relevant documents, that with the smallest hash of its id counts, since many
    documents would link all queries. Whole groups are cut in the order of these hashes, as many as `count`
    has room for: the choice depends neither on the order of the files nor on the machine.

    Raises ValueError if `train` does not exist, has no judgments or too few queries, and if each group has
    more than `count` queries.
    """
    whole = splits.get("train")
    judged = len(whole.qrels.positives.anchors) if whole else 0
    if whole is None or count >= judged:
        raise ValueError(
            f"data.hold_out is {count}, but split 'train' has {judged} queries with a relevant document; "
            f"splits: {', '.join(splits) or 'none'}; lower it, or name the split that it is cut from 'train'"
        )
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows_by_hash: list[tuple[bytes, int]] = []
    for row in whole.qrels.positives.anchors.tolist():
        relevant = documents.same.first_of(whole.qrels.relevant(row)).tolist()
        hashed = (hashlib.sha256(f"0 {documents.ids[one]}".encode()).digest() for one in relevant)
        rows_by_hash.append((min(hashed), row))
    rows_by_hash.sort()
    # A query links its document, by the hash, and its text.
    hashes = [of_document for of_document, _ in rows_by_hash]
    texts = [text_key(whole.queries.columns["text"][row]) for _, row in rows_by_hash]
    nodes = {node: number for number, node in enumerate(dict.fromkeys([*hashes, *texts]))}
    ends = [nodes[node] for node in hashes], [nodes[node] for node in texts]
    links = coo_array((np.ones(len(texts)), ends), shape=(len(nodes), len(nodes)))
    group_of = connected_components(links, directed=False)[1]
    groups: dict[int, list[int]] = defaultdict(list)
    for of_document, row in rows_by_hash:
        groups[int(group_of[nodes[of_document]])].append(row)
    held_out: list[int] = []
    for group in groups.values():
        if len(held_out) + len(group) <= count:
            held_out += group
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
