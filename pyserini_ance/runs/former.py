"""Former: what the stage before has left for the next one, its result and the tables with which it ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.generation import TableKey, in_use, open_generation, table_digest
from pyserini_ance.runs.log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import sha256_json


@dataclass(frozen=True)
class Former:
    """`result` is the name of its checkpoint, `weights` that one's; `generations`: folder and weights of the tables last in use."""

    run: RunDir
    result: str
    weights: str
    generations: dict[str, str]

    @classmethod
    def of(cls, recipe: Recipe, run: RunDir, name: str, world: World) -> "Former":
        """Of the stage before stage `name`; called by all processes. Raises RuntimeError when that one has not ended."""
        return cls(run, **world.once(lambda: _look(recipe, run, recipe.stage_before(name))))

    def tables(self, identity: Mapping[str, str]) -> dict[TableKey, NegativeTable]:
        """With their origins. Raises what `open_generation` raises."""
        tables = {}
        for folder, weights in self.generations.items():
            found = open_generation(self.run.folder / folder, {"weights": weights, **identity}).tables
            tables.update({key: table.of_generation(Path(folder).name) for key, table in found.items()})
        return tables

    def digest(self) -> str:
        """Of all that `tables` reads: whatever takes them over says so by this."""
        return sha256_json({folder: table_digest(self.run.folder / folder) for folder in self.generations})


def _look(recipe: Recipe, run: RunDir, name: str) -> dict:
    log = RunLog(run, writes=False)
    ended, adoptions = ([r for r in log.decisions(event) if r["stage"] == name] for event in ("stage_end", "adopt"))
    if not ended:
        raise RuntimeError(f"{run.decisions} tells of no end of stage {name}, from which the next stage takes over")
    used = {record["folder"]: record["weights"] for record in in_use(recipe.stages[name], adoptions)}
    return {"result": ended[-1]["result"], "weights": ended[-1]["weights"], "generations": used}
