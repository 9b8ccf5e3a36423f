"""The memory of a training step: bytes that are kept for the backward pass."""

from collections import Counter
from collections.abc import Callable, Iterable

import torch


class KeptBytes(torch.autograd.graph.saved_tensors_hooks):
    """Counts, while it is entered, the bytes that graphs keep for their backward pass: `now` and at the
    `peak`.

    Tensors that share memory count once; the weights `apart` do not count.
    """

    def __init__(self, apart: Iterable[torch.Tensor] = ()):
        super().__init__(self._keep, lambda kept: kept.tensor)
        self.now = self.peak = 0
        self._apart = {_memory(weight) for weight in apart}
        self._users: Counter[int] = Counter()

    def __enter__(self) -> "KeptBytes":
        super().__enter__()
        return self

    def _keep(self, saved: torch.Tensor) -> "_Kept":
        tensor = saved.detach()  # a result that held its own graph would never be freed
        memory, size = _memory(tensor), tensor.untyped_storage().nbytes()
        if memory in self._apart:
            return _Kept(tensor, lambda: None)
        self._users[memory] += 1
        if self._users[memory] == 1:
            self.now += size
            self.peak = max(self.peak, self.now)
        return _Kept(tensor, lambda: self._free(memory, size))

    def _free(self, memory: int, size: int) -> None:
        self._users[memory] -= 1
        if not self._users[memory]:
            self.now -= size


class _Kept:
    """A tensor that a graph keeps; calls `free` when the graph lets go of it."""

    def __init__(self, tensor: torch.Tensor, free: Callable[[], None]):
        self.tensor, self._free = tensor, free

    def __del__(self) -> None:
        self._free()


def _memory(tensor: torch.Tensor) -> int:
    """The identity of a tensor's memory, as long as that is in use; fake tensors have no address."""
    return tensor.untyped_storage()._cdata
