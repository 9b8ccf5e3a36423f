"""Rankings of the test queries by initial weights, in the cache: each is made once for all runs.

Runs that start from the same weights, as those of a grid do, would each encode all documents with them.
"""

import logging
from pathlib import Path

import torch

from pyserini_ance import __version__
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.hardware import cpu_has_fast_bf16, cpu_is_amd, cpu_prefers_eager_attention
from pyserini_ance.encoders.load_save import family_of
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import copy_whole, sha256_json
from pyserini_ance.storage.publish import is_complete, publish_once, read_manifest

FOLDER = "initial"
LAYOUT = 1
log = logging.getLogger(__name__)


class InitialRankings:
    """The rankings of row `row` of a run, by `checkpoint`: in the run, and in the cache.

    They are equal where weights, data, settings and machine are; other runs rank themselves. Only the main
    process calls it.
    """

    def __init__(
        self, row: str, checkpoint: Checkpoint, recipe: Recipe, data: PreparedData, run: RunDir, world: World
    ):
        test, is_cuda = recipe.final_evaluation, world.device.startswith("cuda")
        self.row, self._files = row, {f"{split}.trec": run.ranking(row, split) for split in test.split}
        self._key = {
            "layout": LAYOUT,
            "version": __version__,  # another release may encode in other batches
            "row": row,
            "weights": list(checkpoint.hashes),
            "encoder": family_of(checkpoint.encoder).model_dump(mode="json", exclude={"model"}),
            **data.identity,
            "splits": list(test.split),
            "hits": test.hits,
            "precision": test.precision,
            "encoding": recipe.encoding.model_dump(mode="json"),
            # What the last bits of a vector depend on, besides the encoder and the batches.
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(world.device) if is_cuda else world.device,
            "processor": [
                torch.backends.cpu.get_cpu_capability(),
                cpu_has_fast_bf16(),
                cpu_is_amd(),
                cpu_prefers_eager_attention(),
                torch.get_num_threads(),
            ],
            "processes": world.size,
        }
        self._folder = recipe.cache / FOLDER / sha256_json(self._key)[:32]

    def copy_to_run(self) -> bool:
        """Copy the rankings of an earlier run to this one; False if there are none.

        Raises RuntimeError if a file is not as it was written.
        """
        if not is_complete(self._folder):
            return False
        read_manifest(self._folder)
        for name, path in self._files.items():
            path.parent.mkdir(exist_ok=True)
            copy_whole(self._folder / name, path)
        log.debug("row %s: ranked by an earlier run, found in %s", self.row, self._folder)
        return True

    def copy_to_cache(self) -> None:
        """Copy this run's rankings for later ones."""

        def fill(folder: Path) -> None:
            for name, path in self._files.items():
                copy_whole(path, folder / name)

        publish_once(self._folder, {"key": self._key}, fill)
