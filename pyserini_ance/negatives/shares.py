"""Mining by several processes: each mines and filters for its share of the anchors."""

from dataclasses import replace
from typing import Any

import numpy as np

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext, TableSource
from pyserini_ance.negatives.table import PADDING, PER_ANCHOR, NegativeTable

FILLINGS = {"candidates": PADDING, "scores": -np.inf, "origin": 0}  # of narrower parts, by array


def mine_in_shares(
    source: TableSource, snapshot: Snapshot, anchor_set: AnchorSet, context: MiningContext
) -> NegativeTable:
    """The source's table, the same for any number of processes, without anchors that have too few candidates.

    All processes make the call.
    """
    world = snapshot.world
    own = source.mine(snapshot, replace(anchor_set, share=(world.rank, world.size)), context)
    return source.without_short_anchors(own if world.size == 1 else _joined(own, world))


def _joined(own: NegativeTable, world: World) -> NegativeTable:
    width = int(world.gather_rows(np.array([own.candidates.shape[1]])).max())
    arrays: dict[str, Any] = {}
    for name in PER_ANCHOR:
        array = getattr(own, name)
        if array is not None and name in FILLINGS:
            missing = ((0, 0), (0, width - array.shape[1]))
            array = np.pad(array, missing, constant_values=FILLINGS[name])
        arrays[name] = None if array is None else world.gather_rows(array)
    names = sorted(own.dropped)
    counts = world.gather_rows(np.array([[own.dropped[name] for name in names]], np.int64)).sum(0)
    promoted = None if own.promoted is None else np.unique(world.gather_rows(own.promoted), axis=0)
    dropped = dict(zip(names, counts.tolist(), strict=True))
    return replace(own, **arrays, promoted=promoted, dropped={name: dropped[name] for name in own.dropped})
