"""Put together the rows of an array that the processes of a world hold in shares."""

import numpy as np
import torch

from pyserini_ance.distributed.world import World


def gather_rows(own: np.ndarray, world: World) -> np.ndarray:
    """The rows (A, ...) of all shares in order; all processes make the call, after work of any length."""
    if world.size == 1:
        return own
    world.barrier()
    parts = world.gather(torch.from_numpy(np.ascontiguousarray(own)))
    return np.concatenate([part.numpy() for part in parts])
