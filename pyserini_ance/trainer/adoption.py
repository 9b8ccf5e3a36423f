"""Adoption: what a stage has made of its checkpoints, ordered where it is due and taken up by every process together."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.products import Product
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.evaluation import open_evaluation
from pyserini_ance.runs.former import Former
from pyserini_ance.runs.generation import FORMER_TABLES, Generation, TableKey, in_use, mined_sources, open_generation
from pyserini_ance.runs.log import RunLog
from pyserini_ance.runs.orders import Order, ProductKind
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.handover import Desk, Handover, Script

log = logging.getLogger(__name__)


class Adoption:
    """`tables` are those that steps draw from now, by source; `table_steps` the steps of the checkpoints they were mined with.

    `desk_of` says where a product is ordered; `identity` is the data's; `former` is what the stage before left, if this one asks for it.
    """

    def __init__(
        self,
        run: RunDir,
        name: str,
        stage: Stage,
        identity: Mapping[str, str],
        world: World,
        desk_of: Callable[[Product], Desk],
        scripts: Mapping[ProductKind, Script],
        former: Former | None = None,
    ):
        self.run, self.name, self.stage, self.world, self.former = run, name, stage, world, former
        self.identity = {**identity, FORMER_TABLES: former.digest()} if stage.takes_over else identity
        self.log = RunLog(run, world.is_main)
        products: dict[ProductKind, Product | None] = {"tables": stage.refreshing, "dev": stage.measuring}
        self.handovers = {
            kind: Handover(kind, product, stage.steps, desk_of(product), scripts.get(kind, Script()))
            for kind, product in products.items()
            if product
        }
        self.tables: dict[TableKey, NegativeTable] = {}
        self.table_steps: dict[TableKey, int] = {}

    def due(self, step: int) -> list[ProductKind]:
        """What is to be made of the checkpoint before step `step`."""
        mine = bool(mined_sources(self.stage)) if step == 0 else self.stage.refresh_is_due(step)
        return [kind for kind, is_due in (("tables", mine), ("dev", self.stage.evaluation_is_due(step))) if is_due]

    @property
    def open_steps(self) -> set[int]:
        """Steps of the checkpoints of which something is still to be made or taken."""
        return {order.step for handover in self.handovers.values() for order in handover.open}

    def proceed(self, kind: ProductKind, step: int, ordered: str | None) -> list[tuple[int, float]]:
        """Order `kind` of the checkpoint before step `step`, whose weights are `ordered`, and adopt what is to be adopted now.

        The dev measures among it: (step of the checkpoint, value).
        """
        handover = self.handovers[kind]
        measured = self._take(kind, step)  # first, so that nothing that is made gives way to a new order
        if ordered:
            if kind == "tables" and step == 0 and self.stage.mines_with_previous:
                handover.order(self.name, step, self.former.weights, self.former.result)
            else:
                handover.order(self.name, step, ordered)
            measured += self._take(kind, step)
        return measured

    def _take(self, kind: ProductKind, step: int) -> list[tuple[int, float]]:
        start, measured = time.perf_counter(), []
        for order in self.handovers[kind].take(step):
            if kind == "tables":
                self._adopt(order, step, time.perf_counter() - start)
            else:
                measured.append((order.step, self._evaluation(order, step)))
        return measured

    def recall(self, decisions: list[dict]) -> None:
        """Take up again the tables that adoptions before an interruption left: static ones of the first, others of the last."""
        for decision in in_use(self.stage, decisions):
            self._use(open_generation(self.run.folder / decision["folder"], {"weights": decision["weights"], **self.identity}))

    def close(self) -> None:
        """The stage has ended."""
        for handover in self.handovers.values():
            handover.close()

    def _adopt(self, order: Order, step: int, waited: float) -> None:
        generation = self._open(order)
        where = {"stage": self.name, "step": step, "of": order.step}
        self._decide("tables", "adopt", **where, folder=str(generation.folder.relative_to(self.run.folder)), weights=order.weights)
        self._use(generation)
        self.log.metric("generation", **where, age_steps=step - order.step, waited_seconds=round(waited, 3), **generation.report)
        log.info("stage %s, step %d: negatives of step %d; waited %.1f s; %s", self.name, step, order.step, waited, generation.describe())

    def _open(self, order: Order) -> Generation:
        """Every process opens and verifies the tables; training goes on only when all could."""
        folder, error, generation = self.run.generation(self.name, order.step), None, None
        try:
            generation = open_generation(folder, {"weights": order.weights, **self.identity})
        except (OSError, RuntimeError) as problem:
            error = problem
        self.world.meet()  # reading may take one longer than another
        if not self.world.all_agree(error is None):
            raise error or RuntimeError(f"{folder} could not be opened by another process")
        return generation

    def _decide(self, kind: ProductKind, event: str, **values: Any) -> None:
        if not self.handovers[kind].script.stands_in_the_log(values["step"]):
            self.log.decide(event, **values)

    def _use(self, generation: Generation) -> None:
        self.tables.update(generation.tables)
        self.table_steps.update(dict.fromkeys(generation.tables, generation.step))

    def _evaluation(self, order: Order, step: int) -> float:
        where = {"stage": self.name, "step": step, "of": order.step}
        found = self.world.once(lambda: open_evaluation(self.run.evaluation(self.name, order.step), order.weights))
        value = {key: found[key] for key in ("value", "splits") if key in found}
        self._decide("dev", "evaluate", **where, **value, weights=order.weights)
        self.log.metric("dev", **where, measure=self.stage.evaluate.measure, **value, parts=found["seconds"])
        each = ", ".join(f"{split} {of_split:.4f}" for split, of_split in found.get("splits", {}).items())
        log.info("stage %s, step %d: dev %s %.4f%s", self.name, order.step, self.stage.evaluate.measure, found["value"], each and f" ({each})")
        return found["value"]
