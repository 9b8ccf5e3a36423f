"""refresh(checkpoint): mine the negatives of a stage, or measure, with one checkpoint's view of the collection."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.episode import Episode
from pyserini_ance.negatives.snapshot import Snapshot, vectors_folder
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.products import Refresh
from pyserini_ance.refresher.evaluation import evaluate_on_dev
from pyserini_ance.refresher.report import table_report
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.evaluation import publish_evaluation
from pyserini_ance.runs.former import Former
from pyserini_ance.runs.generation import (
    FORMER_TABLES,
    TableKey,
    mined_sources,
    newest_generation_before,
    open_generation,
    publish_generation,
    table_name,
)
from pyserini_ance.runs.orders import Order
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.lease import leased
from pyserini_ance.storage.publish import is_complete


class CheckpointGone(FileNotFoundError):
    """What was ordered cannot be made any more. All processes of the world hear it together."""


class Refresher:
    """Bound to one run. Called by the training processes (inline) or by a refresher's own: every process of the world calls `make`.

    `say` hears what it does.
    """

    def __init__(
        self, recipe: Recipe, data: PreparedData, run: RunDir, device: str, world: World, say: Callable[[str], None] = lambda doing: None
    ):
        self.recipe, self.data, self.run, self.device, self.world, self.say = recipe, data, run, device, world, say
        self._seen: Snapshot | None = None

    def make(self, order: Order) -> None:
        """Publish what is ordered, unless it is there. Raises CheckpointGone where it applies."""
        if self.world.once(lambda: order.is_made(self.run)):
            return
        with ExitStack() as leases:
            if not self.world.once(lambda: self._lease(leases, order)):
                raise CheckpointGone(f"{order.folder(self.run)} has gone, and {order.kind} were ordered of it")
            snapshot = self._snapshot(order)
            self._lease_vectors(leases, order, snapshot)
            self._mine(order, snapshot, leases) if order.kind == "tables" else self._measure(order, snapshot)

    def _lease(self, leases: ExitStack, order: Order) -> bool:
        """Keep the checkpoint from being removed. False when it has gone already."""
        folder = order.folder(self.run)
        self.say(f"{order.kind} of {folder.name}")
        if is_complete(folder):
            leases.enter_context(leased(folder, f"{order.kind} are made of it"))
        return is_complete(folder)

    def _lease_vectors(self, leases: ExitStack, order: Order, snapshot: Snapshot) -> None:
        """Training that has dropped the order meanwhile would remove them under our eyes."""
        folder = vectors_folder(self.run.scratch, snapshot.document_weights, snapshot.precision)

        def lease() -> None:
            folder.parent.mkdir(exist_ok=True)
            leases.enter_context(leased(folder, f"{order.kind} are made of them"))

        self.world.once(lease)

    def _snapshot(self, order: Order) -> Snapshot:
        """The last one when it is of the same checkpoint: what it has encoded and found serves again."""
        folder = order.folder(self.run)
        checkpoint = Checkpoint(folder, *self.world.once(lambda: Checkpoint.open(folder).hashes))
        if checkpoint.weights != order.weights:
            raise RuntimeError(f"{checkpoint.folder} holds weights {checkpoint.weights[:12]}, but {order.weights[:12]} were ordered")
        if self._seen is None or self._seen.weights != checkpoint.weights:
            where = (self.recipe.encoding, self.run.scratch, self.device, self.world)
            self._seen = Snapshot(checkpoint.encoder, checkpoint.weights, self.data, *where, checkpoint.document_weights)
        self._seen.seconds.clear()
        return self._seen

    def _mine(self, order: Order, snapshot: Snapshot, leases: ExitStack) -> None:
        stage = self.recipe.stages[order.stage]
        former = Former.of(self.recipe, self.run, order.stage, self.world) if stage.takes_over else None
        former_tables = former.tables(self.data.identity) if former else {}
        previous = self._tables_before(order, leases) or former_tables
        chunk = self._chunk(order.step, stage.refreshing)
        tables, reports = {}, {}
        for key, source in mined_sources(stage, refreshed_only=order.step > 0).items():
            start, before = time.perf_counter(), sum(snapshot.seconds.values())
            with snapshot.only(chunk if source.refreshed else None):
                tables[key] = source.mine(snapshot, stage.terms[key[0]].anchor, self._episode(order, key, former_tables))
                short = source.check(tables[key], self.data.collection, self.data.split)
                reports[table_name(key)] = {"short_queries": short, **table_report(tables[key], previous.get(key), snapshot, source)}
            within = sum(snapshot.seconds.values()) - before
            snapshot.seconds["filter"] = snapshot.seconds.get("filter", 0.0) + time.perf_counter() - start - within

        def publish() -> None:
            about = {"stage": order.stage, "step": order.step, "weights": order.weights, **self.data.identity}
            about |= {FORMER_TABLES: former.digest()} if former else {}
            publish_generation(self.run.generation(order.stage, order.step), tables, reports, snapshot.seconds, about)

        self.world.once(publish)

    def _chunk(self, step: int, refresh: Refresh) -> np.ndarray | None:
        """Rows of the training queries to mine for now, None: all. Each split that is trained on has its share of every chunk."""
        if refresh.chunks == 1:
            return None
        queries = np.arange(len(self.data.split.queries))
        parts = [queries[part] for part in self.data.part_rows]
        return np.concatenate([part[refresh.chunk(step, len(part))] for part in parts])

    def _episode(self, order: Order, key: TableKey, former: Mapping[TableKey, NegativeTable]) -> Episode:
        term, position = key
        of_term = tuple(former[key] for key in sorted(former) if key[0] == term)
        places = list(self.recipe.stages).index(order.stage), order.step, list(self.recipe.stages[order.stage].terms).index(term), position
        return Episode(self.run.generation(order.stage, order.step).name, of_term, (self.recipe.seed, *places))

    def _tables_before(self, order: Order, leases: ExitStack) -> dict[TableKey, NegativeTable]:
        """Of the generation before, for comparison; none when training removes it just now."""
        name = self.world.once(lambda: str(newest_generation_before(self.run, order.stage, order.step) or ""))
        if not name or not self.world.once(lambda: self._lease_tables(leases, Path(name))):
            return {}
        return open_generation(Path(name), self.data.identity).tables

    def _lease_tables(self, leases: ExitStack, folder: Path) -> bool:
        leases.enter_context(leased(folder, "new tables are compared with them"))
        return is_complete(folder)

    def _measure(self, order: Order, snapshot: Snapshot) -> None:
        values = evaluate_on_dev(snapshot, self.recipe.stages[order.stage].evaluate, self.recipe.seed)
        seconds = {part: round(seconds, 3) for part, seconds in snapshot.seconds.items()}
        path = self.run.evaluation(order.stage, order.step)
        self.world.once(lambda: publish_evaluation(path, values, order.weights, seconds))
