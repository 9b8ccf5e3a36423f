"""A stage that tests train: over the small collection, in a run directory of its own."""

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import start_encoder
from pyserini_ance.experiment.experiment import accelerator_of
from pyserini_ance.experiment.prepare import read_collection, tokenise
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.checkpoint import Place, publish_checkpoint
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_lines
from pyserini_ance.trainer.desks import Inline
from pyserini_ance.trainer.trainer import StageTraining

MIXED = {
    "query": {"negatives": [{"kind": "ann", "depth": 8, "per_query": 2}], "loss": {"kind": "nll", "scale": 0.1}},
    "batch": {"pool": "step", "loss": {"kind": "nll", "scale": 0.1}, "weight": 0.5},
}


class Training:
    """A stage over the small collection in a run directory of its own."""

    def __init__(self, small_recipe, folder, terms: dict, **stage):
        settings = {"steps": 10, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3}, "terms": terms, **stage}
        self.recipe, self.run = small_recipe({"a": settings}), RunDir(folder)
        self.data = tokenise(self.recipe, read_collection(self.recipe))
        self.start = publish_checkpoint(self.run, start_encoder(self.recipe.encoder, 0), None, Place("initial", 0))

    @property
    def make(self):
        return Refresher(self.recipe, self.data, self.run, "cpu", World()).make

    def stage(self, make=None) -> StageTraining:
        desk = Inline(make or self.make)
        return StageTraining(self.recipe, "a", self.data, self.run, accelerator_of(self.recipe), World(), lambda product: desk)

    def train(self, make=None, resume: bool = False):
        return self.stage(make).train(self.start, resume)

    def metrics(self, event: str) -> list[dict]:
        return [record for record in read_json_lines(self.run.metrics) if record["event"] == event]

    def decisions(self, event: str) -> list[dict]:
        return [record for record in read_json_lines(self.run.decisions) if record["event"] == event]
