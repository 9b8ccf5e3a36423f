"""Searches in bf16 with a proof, of both kinds, on small data, and the small limits for them."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors import bf16_scan, search
from pyserini_ance.vectors.bf16_scan import CpuScan, DeviceScan
from pyserini_ance.vectors.search import searcher

KINDS = {"device": DeviceScan, "cpu": CpuScan}
LIMITS = {
    bf16_scan: {
        "FEWEST_QUERIES": 8,
        "FEWEST_NUMBERS": 8 * 48,
        "FEWEST_DIMENSIONS": 4,
        "FEWEST_DOCUMENTS": 100,
        "FEWEST_PER_RESULT": 1.2,
    },
    search: {"QUERIES_PER_BLOCK": 7, "SCORES_IN_CACHE": 7 * 640},
}


def lower_limits(monkeypatch) -> None:
    """Let small searches pay, in several blocks."""
    for module, limits in LIMITS.items():
        for name, few in limits.items():
            monkeypatch.setattr(module, name, few)


def drawn(queries: int, documents: int, mean: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors of 48 numbers with a common part that is `mean` times as long as the rest."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=48)
    vectors = rng.normal(size=(queries + documents, 48)) + mean * common
    made = torch.from_numpy(vectors.astype(np.float32))
    return made[:queries], made[queries:]


def by_bf16(documents: torch.Tensor, kind: str = "device") -> Callable:
    """A search in bf16, and in fp32 where there is no proof, as `searcher` makes it."""
    fp32 = searcher(documents, "torch", "cpu", World())
    return partial(search._search_by_bf16, KINDS[kind], documents, World(), 64, fp32)


def proven(documents: torch.Tensor, queries: torch.Tensor, k: int, kind: str = "device") -> torch.Tensor:
    """Which queries (Q,) need no search in fp32."""
    scan = KINDS[kind](documents, [queries], k)
    for first in range(0, len(documents), 1000):
        scan.update(first, min(first + 1000, len(documents)))
    return scan.result()[1]
