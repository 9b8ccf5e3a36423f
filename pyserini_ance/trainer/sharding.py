"""Frozen weights in parts: each process of a torchrun holds its share of them (FSDP2).

What trains beside them is whole on every process, as without: steps, checkpoints and resuming do not change.
"""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.inference_copy import transformers_in
from pyserini_ance.encoders.towers import find_layers


def shard_frozen(encoder: Encoder, world: World) -> None:
    """Let the processes of `world` hold a part each of the weights beside adapters with `shard_base`.

    A layer's weights are whole while it computes. All processes must then call the towers equally often; one
    that is lost ends the others by torch's error, without a last checkpoint.
    """
    if world.size == 1 or encoder.adapters is None or not encoder.adapters.lora.shard_base:
        return
    towers, mesh = encoder.towers, init_device_mesh(torch.device(world.device).type, (world.size,))
    trained = {weight for weight in towers.parameters() if weight.requires_grad}
    adapted = nn.ModuleList(towers.tower(side) for side in encoder.adapters.sides)
    for model in transformers_in(adapted):
        name, _ = find_layers(model, "lora.shard_base", encoder.config.model)
        for layer in model.get_submodule(name):
            fully_shard(layer, mesh=mesh, ignored_params=trained)
    # The rest; sentence-transformers calls the model's `forward` itself, which no hook sees.
    fully_shard(towers, mesh=mesh, ignored_params=trained)
