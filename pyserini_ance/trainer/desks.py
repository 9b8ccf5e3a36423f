"""The two desks: products are made by the training processes themselves, at once, or by a refresher beside them."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pyserini_ance.distributed.world import World
from pyserini_ance.recipe.models import RefresherProcess
from pyserini_ance.runs.orders import Order, write_orders
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.watch import Watch

log = logging.getLogger(__name__)
POLL_SECONDS = 0.2
FIRST_REPORT_SECONDS, REPORT_SECONDS = 10, 60
LATE_SECONDS = 120
NAMES = {"tables": "negatives", "dev": "dev measure"}


class Inline:
    """`make` is the refresher's, injected: trainer and refresher do not know each other."""

    def __init__(self, make: Callable[[Order], None]):
        self.make = make

    def place(self, order: Order) -> None:
        self.make(order)

    def drop(self, orders: Collection[Order]) -> None:
        pass

    def is_made(self, order: Order) -> bool:
        return True

    def wait(self, orders: Sequence[Order]) -> Order:
        return orders[-1]


class Background:
    """Orders go into the run directory, and what a refresher makes of them comes from there. The first process looks, for all.

    `command` starts a refresher; it stands in messages. `former` is what a refresher of an earlier training has left at its post.
    """

    def __init__(self, run: RunDir, settings: RefresherProcess, command: str, world: World, former: dict[str, Any] | None = None):
        self.run, self.settings, self.command, self.world, self.former = run, settings, command, world, former
        self.open: list[Order] = []

    def place(self, order: Order) -> None:
        self._write([*self.open, order])

    def drop(self, orders: Collection[Order]) -> None:
        self._write([order for order in self.open if order not in orders])

    def is_made(self, order: Order) -> bool:
        return self.world.all_agree(order.is_made(self.run))  # asked before every step: a collective is quicker than polling

    def wait(self, orders: Sequence[Order]) -> Order:
        """Raises RuntimeError when no refresher is heard of for `wait_seconds`, or when it has failed."""
        made = orders[self.world.once(lambda: self._wait(orders))]
        end = time.monotonic() + LATE_SECONDS
        while not made.is_made(self.run) and time.monotonic() < end:
            self.world.check()
            time.sleep(POLL_SECONDS)  # another host: its file server's client shows new names late
        self.world.meet()
        return made

    def reset(self) -> None:
        """Forget what an earlier stage, or a trainer that died, had ordered."""
        self._write([])

    def _write(self, orders: list[Order]) -> None:
        self.open = sorted(orders, key=lambda order: order.step)
        if self.world.is_main:
            write_orders(self.run, self.open)

    def _wait(self, orders: Sequence[Order]) -> int:
        """The place in `orders` of the last that is made."""
        watch, heard = Watch(self.run.refresher), time.monotonic()
        say = heard + FIRST_REPORT_SECONDS
        wanted = " or ".join(f"{NAMES[order.kind]} of stage {order.stage}, step {order.step}" for order in orders)
        while not (made := [place for place, order in enumerate(orders) if order.is_made(self.run)]):
            now = time.monotonic()
            if watch.alive():
                heard = now
            else:
                self._refuse_failed(wanted)
            if now - heard > self.settings.wait_seconds:
                raise RuntimeError(
                    f"training needs the {wanted}, and no refresher has been heard of for {self.settings.wait_seconds} seconds "
                    f"({watch.describe()}). Start one with: {self.command}\nand go on with --resume"
                )
            if now > say:
                say = now + REPORT_SECONDS
                log.info("waiting for the %s: %s", wanted, watch.describe() if now == heard else self._how_to_start(watch))
            self.world.check()
            time.sleep(POLL_SECONDS)
        return made[-1]

    def _how_to_start(self, watch: Watch) -> str:
        return f"no refresher is at work ({watch.describe()}); start one with: {self.command}"

    def _refuse_failed(self, wanted: str) -> None:
        state = self.run.refresher.read()
        if state and state["status"] == "failed" and state != self.former:
            raise RuntimeError(
                f"training needs the {wanted}, but the refresher has failed: {state.get('reason')}\n"
                f"Start it again with: {self.command}\nand go on with --resume"
            )
