"""refresh(checkpoint): mine the negatives of a stage, and measure, with one checkpoint's view of the collection."""

import time
from collections.abc import Mapping

from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.source import MinedSource
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.refresher.evaluation import evaluate_on_dev
from pyserini_ance.refresher.report import table_report
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.generation import Refreshed, TableKey, open_tables, publish_tables, table_name
from pyserini_ance.runs.rundir import RunDir


class Refresher:
    """Bound to one experiment; called with a checkpoint, now by the trainer, inline."""

    def __init__(self, recipe: Recipe, data: PreparedData, run: RunDir, device: str, world: World):
        self.recipe, self.data, self.run, self.device, self.world = recipe, data, run, device, world

    def refresh(
        self,
        checkpoint: Checkpoint,
        stage_name: str,
        step: int,
        sources: Mapping[TableKey, MinedSource],
        previous: Mapping[TableKey, NegativeTable],
        measure_dev: bool,
    ) -> Refreshed:
        """Mine `sources` and publish their tables; with `measure_dev` also run the stage's evaluation.

        `previous` tables are compared with the new ones in the reports.
        """
        stage = self.recipe.stages[stage_name]
        encoding, scratch = self.recipe.encoding, self.run.scratch
        snapshot = Snapshot(checkpoint.encoder, checkpoint.weights, self.data, encoding, scratch, self.device, self.world)
        tables, reports = {}, {}
        for key, source in sources.items():
            start = time.perf_counter()
            tables[key] = source.mine(snapshot)
            short = source.check(tables[key], self.data.split)
            reports[table_name(key)] = {"short_queries": short, **table_report(tables[key], previous.get(key), snapshot, source)}
            snapshot.seconds[f"mine {source.kind}"] = time.perf_counter() - start
        folder = self.run.generation(stage_name, step) if tables else None
        if folder:
            about = {"stage": stage_name, "step": step, "weights": checkpoint.weights, "collection": self.data.collection.digest}
            publish_tables(folder, tables, about)
            tables = open_tables(folder, checkpoint.weights, self.data.collection.digest)  # what is trained on is what was published
        dev = evaluate_on_dev(snapshot, stage.evaluate, self.recipe.seed) if measure_dev else None
        return Refreshed(tables, reports, dev, {k: round(v, 3) for k, v in snapshot.seconds.items()}, folder)
