"""Orders: what training wants made of which checkpoints, in one file that a refresher polls."""

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import write_json
from pyserini_ance.storage.publish import is_complete

ProductKind = Literal["tables", "dev"]


@dataclass(frozen=True)
class Order:
    """What is wanted of the checkpoint before `step` of `stage`, whose weights have this hash.

    `awaited`: training will wait for just this one; otherwise a newer order takes its place.
    """

    kind: ProductKind
    stage: str
    step: int
    weights: str
    awaited: bool = True

    def is_made(self, run: RunDir) -> bool:
        if self.kind == "tables":
            return is_complete(run.generation(self.stage, self.step))
        return run.evaluation(self.stage, self.step).exists()


def write_orders(run: RunDir, orders: Iterable[Order]) -> None:
    write_json(run.orders, [asdict(order) for order in orders])


def read_orders(run: RunDir) -> list[Order]:
    if not run.orders.exists():
        return []
    return [Order(**order) for order in json.loads(run.orders.read_text(encoding="utf-8"))]


def next_orders(orders: Collection[Order], run: RunDir) -> list[Order]:
    """What a refresher makes next: all that is wanted of one checkpoint, tables first; nothing when all is made.

    Awaited orders come first, the oldest first; of the others only the newest is worth making.
    """
    waiting = [order for order in orders if not order.is_made(run)]
    awaited = [order for order in waiting if order.awaited]
    if not waiting:
        return []
    first = awaited[0] if awaited else waiting[-1]
    return sorted((o for o in waiting if (o.stage, o.step) == (first.stage, first.step)), key=lambda o: o.kind != "tables")
