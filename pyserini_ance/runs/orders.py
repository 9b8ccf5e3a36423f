"""Orders: what training wants made of which checkpoints, in one file that a refresher polls."""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_object, write_json
from pyserini_ance.storage.publish import is_complete

ProductKind = Literal["tables", "dev"]


@dataclass(frozen=True)
class Order:
    """What is wanted of the checkpoint before `step` of `stage`, whose weights have this hash.

    `awaited`: training will wait for just this one; otherwise a newer one will do as well. `checkpoint` names another
    checkpoint to make it of, that of a former stage.
    """

    kind: ProductKind
    stage: str
    step: int
    weights: str
    awaited: bool = True
    checkpoint: str = ""

    def folder(self, run: RunDir) -> Path:
        """Of the checkpoint that it is made of."""
        return run.checkpoints / self.checkpoint if self.checkpoint else run.checkpoint(self.stage, self.step)

    def is_made(self, run: RunDir) -> bool:
        if self.kind == "tables":
            return is_complete(run.generation(self.stage, self.step))
        return run.evaluation(self.stage, self.step).exists()


def write_orders(run: RunDir, orders: Iterable[Order]) -> None:
    write_json(run.orders, {"orders": [asdict(order) for order in orders]})


def read_orders(run: RunDir) -> list[Order]:
    found = read_json_object(run.orders)
    return [Order(**order) for order in found["orders"]] if found else []


def next_orders(orders: Collection[Order], run: RunDir) -> list[Order]:
    """What a refresher makes next: all that is wanted of one checkpoint; nothing when all is made.

    Tables come before dev measures: training draws from them. Of tables that are awaited the oldest, of others the newest
    is the next; of dev measures the oldest, each is wanted.
    """
    waiting = [order for order in orders if not order.is_made(run)]
    tables = [order for order in waiting if order.kind == "tables"]
    awaited = [order for order in tables if order.awaited]
    first = next(iter(awaited or tables[::-1] or waiting), None)
    if first is None:
        return []
    return sorted((o for o in waiting if (o.stage, o.step) == (first.stage, first.step)), key=lambda o: o.kind != "tables")
