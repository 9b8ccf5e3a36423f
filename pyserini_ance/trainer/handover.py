"""Handover: one kind of product of a stage, tables of negatives or dev measures, from the order to its adoption."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from pyserini_ance.recipe.products import Product
from pyserini_ance.runs.orders import Order, ProductKind


class Desk(Protocol):
    """Where orders go: to the training processes themselves, or to a refresher."""

    def place(self, order: Order) -> None: ...

    def drop(self, orders: Collection[Order]) -> None:
        """Nobody waits for these any more."""

    def is_made(self, order: Order) -> bool: ...

    def wait(self, orders: Sequence[Order]) -> Order:
        """The last of `orders` that is made, when one is; every process can open it then."""


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Script:
    """Recorded adoptions that are to be repeated: {step: steps of the checkpoints adopted before it}, known up to step `until`.

    `weights` are those that the checkpoints had.
    """

    adoptions: Mapping[int, list[int]] = field(default_factory=dict)
    until: float = -1
    weights: Mapping[int, str] = field(default_factory=dict)

    def stands_in_the_log(self, step: int) -> bool:
        """Whether the run itself recorded, before it was interrupted, what it adopts before step `step`."""
        return step <= self.until < inf

    def uses(self, checkpoint_step: int) -> bool:
        return any(checkpoint_step in steps for steps in self.adoptions.values())


class Handover:
    """`open` orders, oldest first. They are few: training waits for tables that are due or too old, and of dev measures that
    are taken when ready, the oldest, which may be in the works, and the newest are enough.
    """

    def __init__(self, kind: ProductKind, product: Product, steps: int, desk: Desk, script: Script):
        self.kind, self.product, self.steps, self.desk, self.script = kind, product, steps, desk, script
        self.open: list[Order] = []
        self.taken_step = 0

    def order(self, stage: str, step: int, weights: str, checkpoint: str = "") -> None:
        """Ask for the product of a checkpoint, which may be another stage's, unless the script says that it will not be used."""
        used = self.script.uses(step)
        if not used and self.script.until == inf:
            return
        if used and self.script.weights[step] != weights:
            log.warning(
                "stage %s, step %d: the weights differ from the recorded run's; it is repeated step for step, but not bitwise", stage, step
            )
        awaited = used or self.product.lag_steps is not None or step in (0, self.steps)
        order = Order(self.kind, stage, step, weights, awaited, checkpoint)
        if not awaited and self.kind == "dev":
            self._close([o for o in self.open[1:] if not self.desk.is_made(o)])
        self.open.append(order)
        self.desk.place(order)

    def reopen(self, stage: str, checkpoints: Iterable[tuple[int, str | None]], taken: Collection[int]) -> None:
        """Order again, after an interruption, what was ordered of `checkpoints` (step, weights) and not taken."""
        self.taken_step = max(taken, default=0)
        free = self.product.lag_steps is None
        for step, weights in checkpoints:
            if step in taken or (free and (step < self.taken_step or weights is None)):
                continue
            if weights is None:
                raise RuntimeError(f"stage {stage} cannot go on: its checkpoint of step {step} is gone, and with it the {self.kind} made of it")
            self.order(stage, step, weights)

    def take(self, step: int) -> list[Order]:
        """The orders whose products are adopted before step `step`, all made; waits where the schedule does."""
        if not self.open:
            return []
        taken = self._scheduled(step)
        if taken is None:
            taken = self._ready(step)
        for order in taken:
            self.desk.wait([order])
            self.taken_step = order.step
        free = self.product.lag_steps is None
        self._close([o for o in self.open if o in taken or (free and o.step < self.taken_step and not self.script.uses(o.step))])
        return taken

    def close(self) -> None:
        """The stage has ended."""
        self._close(self.open)

    def _scheduled(self, step: int) -> list[Order] | None:
        """What must be adopted now; None when that is free."""
        lag = self.product.lag_steps
        scripted = step <= self.script.until
        if step == self.steps and self.script.until != inf:
            return [] if self.kind == "tables" else list(self.open)  # no step is left that would draw from tables
        if scripted:
            return [o for o in self.open if o.step in self.script.adoptions.get(step, ())]
        if step == 0:
            return list(self.open)
        return None if lag is None else [o for o in self.open if o.step + lag <= step]

    def _ready(self, step: int) -> list[Order]:
        """The newest that is made; when the last adopted would be too old for this step, one is waited for."""
        bound = getattr(self.product, "staleness_steps", inf)
        if step - self.taken_step > bound:
            return [self.desk.wait(self.open)]
        return next(([order] for order in reversed(self.open) if self.desk.is_made(order)), [])

    def _close(self, orders: Collection[Order]) -> None:
        orders = list(orders)
        self.open = [order for order in self.open if order not in orders]
        if orders:
            self.desk.drop(orders)
