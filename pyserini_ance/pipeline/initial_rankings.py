"""Rankings of the test queries by initial weights, in the cache: each is made once for all runs.

Runs that start from the same weights, as those of a grid do, would each encode all documents with them.
"""

from pathlib import Path

import torch

from pyserini_ance import __version__
from pyserini_ance.data.prepared import PreparedData
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.hardware import cpu_has_fast_bf16, cpu_is_amd, cpu_prefers_eager_attention
from pyserini_ance.encoders.load_save import family_of
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.checkpoint import Checkpoint
from pyserini_ance.storage.files import sha256_json

FOLDER = "initial"
LAYOUT = 1


def shared_folder(row: str, checkpoint: Checkpoint, recipe: Recipe, data: PreparedData, world: World) -> Path:
    """The folder of the cache for the rankings of row `row` by `checkpoint`.

    Rankings are equal where weights, data, settings and machine are; other runs rank themselves.
    """
    test, is_cuda = recipe.final_evaluation, world.device.startswith("cuda")
    key = {
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
    return recipe.cache / FOLDER / sha256_json(key)[:32]
