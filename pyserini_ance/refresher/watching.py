"""The watch loop: a refresher of its own beside training, which it meets only in the run directory."""

import logging
import time

from pyserini_ance.distributed.world import World
from pyserini_ance.recipe.models import RefresherProcess
from pyserini_ance.refresher.refresher import CheckpointGone, Refresher
from pyserini_ance.runs.orders import Order, next_orders, read_orders
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.watch import Watch

log = logging.getLogger(__name__)
POLL_SECONDS = 0.2


class Watching:
    """Makes what is ordered until training has ended, or has not been heard of for `leave_after_seconds`.

    The first process looks, for all of the world.
    """

    def __init__(self, run: RunDir, refresher: Refresher, settings: RefresherProcess, world: World):
        self.run, self.refresher, self.settings, self.world = run, refresher, settings, world
        self.trainer = Watch(run.trainer)

    def work(self) -> str:
        """Returns why it leaves."""
        while True:
            found = self.world.once(self._look)
            if "leave" in found:
                return found["leave"]
            for order in (Order(**fields) for fields in found["orders"]):
                self._make(order)

    def _make(self, order: Order) -> None:
        start = time.perf_counter()
        try:
            self.refresher.make(order)
        except CheckpointGone:
            # Training may have moved on and removed the checkpoint; if it still wants it, that is an error.
            if self.world.once(lambda: order in read_orders(self.run)):
                raise
            log.info("%s of %s, step %d: no longer wanted", order.kind, order.stage, order.step)
            return
        log.info("%s of stage %s, step %d: made in %.1f s", order.kind, order.stage, order.step, time.perf_counter() - start)

    def _look(self) -> dict:
        """Poll until there is something to make, or a reason to leave."""
        self.refresher.say("waiting for orders")
        heard = time.monotonic()
        while True:
            if orders := next_orders(read_orders(self.run), self.run):
                return {"orders": [vars(order) for order in orders]}
            state = self.run.trainer.read() or {}
            if state.get("status") == "finished":
                return {"leave": "the run has finished"}
            if self.trainer.alive():
                heard = time.monotonic()
            elif time.monotonic() - heard > self.settings.leave_after_seconds:
                return {"leave": f"training has not been heard of for {self.settings.leave_after_seconds} seconds ({self.trainer.describe()})"}
            self.world.check()
            time.sleep(POLL_SECONDS)
