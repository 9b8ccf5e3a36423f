"""Deal: which process encodes which of a chunk's texts, and all their vectors together again."""

import numpy as np
import torch

from pyserini_ance.distributed.world import World


class Deal:
    """N texts, each on one process: longest first and in turn, so that all processes have about as many tokens.

    Every process knows all of it. `own` (n,) are this process's positions among the N, ascending; there may be none.
    """

    def __init__(self, lengths: np.ndarray, world: World):
        order = np.argsort(-lengths, kind="stable")
        self._world = world
        self._hands = [np.sort(order[rank :: world.size]) for rank in range(world.size)]
        self.own = self._hands[world.rank]

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        """(N, D) without gradients, from the (n, D) that each process has."""
        back = np.argsort(np.concatenate(self._hands))
        return torch.cat(self._world.gather(own))[torch.from_numpy(back).to(own.device)]

    def part(self, whole: torch.Tensor) -> torch.Tensor:
        """(n, D) of (N, D)."""
        return whole[torch.from_numpy(self.own).to(whole.device)]
