"""The texts of a step, dealt to the processes."""

import numpy as np
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import to_device


class RankPartition:
    """A partition of N texts over the ranks: dealt longest first, so that all ranks have about equally many
    tokens.

    Every rank knows the whole partition. `own` (n,) are the positions of this rank's texts, ascending; n may
    be 0.
    """

    def __init__(self, lengths: np.ndarray, world: World):
        longest_first = np.argsort(-lengths, kind="stable")
        self._world = world
        self.positions_by_rank = [np.sort(longest_first[rank :: world.size]) for rank in range(world.size)]
        self.own = self.positions_by_rank[world.rank]

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        """Return the rows of all texts (N, D), without a graph, from the rows (n, D) of each rank."""
        if self._world.size == 1:
            return own.detach()
        back = np.argsort(np.concatenate(self.positions_by_rank))
        lengths = list(map(len, self.positions_by_rank))
        gathered = self._world.gather(own, lengths, for_device=True)
        return torch.cat(gathered)[to_device(own.device, back)[0]]

    def select(self, whole: torch.Tensor) -> torch.Tensor:
        """Return this rank's rows (n, D) of `whole` (N, D)."""
        return whole if self._world.size == 1 else whole[to_device(whole.device, self.own)[0]]
