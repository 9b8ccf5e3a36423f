"""The table that a source mines, without a stage before it."""

from pyserini_ance.data.prepared import AnchorSet
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MiningContext, TableSource
from pyserini_ance.negatives.table import NegativeTable


def table_of(source: TableSource, snapshot: Snapshot, anchor_set: AnchorSet | None = None) -> NegativeTable:
    """anchor_set: default: that of the queries."""
    return source.mine(snapshot, anchor_set or snapshot.anchor_set("query"), MiningContext())
