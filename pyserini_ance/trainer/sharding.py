"""Weights in parts: each process of a torchrun holds its share of them (FSDP2).

Beside adapters the frozen weights are shared out, and what trains is whole on every process, as without:
steps, checkpoints and resuming do not change. Where all weights train, so are their gradients and moments;
checkpoints hold the whole, so that a run may go on with another number of processes.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.adapters import sides_of
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.towers import find_layers
from pyserini_ance.recipe.stage import Stage


def shard(
    encoder: Encoder, stage: Stage, world: World, precision: str, make: Callable[[], Encoder]
) -> Encoder | None:
    """Let the processes of `world` hold a part each of the weights of the towers that train; with adapters of
    the frozen ones.

    A layer's weights are whole while it computes; gradients of parts are sums over all processes. All
    processes must then call the towers equally often; one that is lost ends the others by torch's error,
    without a last checkpoint.

    Where all weights train, returns an encoder for the whole (`gather_weights`), which `make` makes on the
    main process; else None. Raises ValueError for fp16.
    """
    form = None
    if encoder.adapters is None:
        if precision == "fp16":
            raise ValueError("gradients in parts have no loss scale; set precision=bf16 or shard=false")
        form = make() if world.is_main else encoder
    towers, mesh = encoder.towers, init_device_mesh(torch.device(world.device).type, (world.size,))
    trains = nn.ModuleList(towers.tower(side) for side in sides_of(stage.trainable))
    ignored = {*towers.parameters()} - {*trains.parameters()}
    if encoder.adapters is not None:
        ignored |= {weight for weight in towers.parameters() if weight.requires_grad}
    # Not the models inside of them: T5's stack has the same layers.
    for model in dict.fromkeys(towers.tower(side).transformer for side in sides_of(stage.trainable)):
        name, _ = find_layers(model, "shard", encoder.config.model)
        for layer in model.get_submodule(name):
            fully_shard(layer, mesh=mesh, ignored_params=ignored)
    # The rest; sentence-transformers calls the model's `forward` itself, which no hook sees.
    fully_shard(towers, mesh=mesh, ignored_params=ignored)
    for module in towers.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo knows no PREMUL_SUM
    return form


def gather_weights(encoder: Encoder, whole: Encoder, world: World) -> None:
    """Give `whole`, on the main process, all weights of an encoder in parts. All processes call it; each
    weight is whole on each of them for a moment."""
    weights = {}
    for name, own in encoder.towers.state_dict().items():
        gathered = own.full_tensor() if isinstance(own, DTensor) else own
        if world.is_main:
            weights[name] = gathered.cpu()
    if world.is_main:
        whole.towers.load_state_dict(weights)
