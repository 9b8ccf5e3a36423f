"""Counts what a GPU's host would do: operators that it launches, and waits for the device.

Tensors on torch's `meta` device stand for those of a GPU: they have shapes but no values. Whatever would have
to wait for values raises there; this mode counts it and goes on with ones.
"""

import traceback
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

META = torch.device("meta")
ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "alias"}
# Their shapes depend on values, so the host has to know these.
SHAPED_BY_VALUES = {"nonzero", "masked_select", "unique_consecutive", "_unique2", "unique_dim", "equal"}


class DeviceCounts(TorchDispatchMode):
    """`waits` and `launches` on meta tensors, by operator; `places` has the line of the package of each wait.

    A wait: a value that the host reads, a shape that depends on values, a copy to or from the device that is
    not asynchronous. A launch: any other operator that is neither a view nor an allocation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.copies: Counter[str] = Counter()
        self.launches: Counter[str] = Counter()
        self.places: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        tensors = [t for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        if name == "_local_scalar_dense" and args[0].is_meta:
            self._wait(name)
            return torch.ones((), dtype=args[0].dtype).item()
        if name in ("_to_copy", "copy_"):
            source = args[1] if name == "copy_" else args[0]
            device = args[0].device if name == "copy_" else kwargs.get("device")
            target = torch.device(device or source.device)
            if (source.device == META) != (target == META):
                is_async = kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2])
                way = "to host" if source.device == META else "to device"
                self.copies[way] += 1
                if not is_async:
                    self._wait(way)
                if target != META:
                    dtype = kwargs.get("dtype") or source.dtype
                    return torch.ones(source.shape, dtype=dtype) if name == "_to_copy" else args[0].fill_(1)
                return func(*args, **kwargs)
        if any(t.is_meta for t in tensors):
            indexed_by_mask = name in ("index", "index_put", "index_put_") and any(
                i is not None and i.dtype == torch.bool for i in args[1]
            )
            if name in SHAPED_BY_VALUES or indexed_by_mask:
                self._wait(name)
            elif not func.is_view and name not in ALLOCATIONS:
                self.launches[name] += 1
        return func(*args, **kwargs)

    def _wait(self, what: str) -> None:
        self.waits[what] += 1
        frames = [f for f in traceback.extract_stack() if "/tests/helpers/" not in f.filename]
        ours = [f for f in frames if "/pyserini_ance/" in f.filename]
        last = (ours or frames)[-1]
        self.places.append(f"{what}: {last.filename.rpartition('/')[2]}:{last.lineno} {last.line}")
