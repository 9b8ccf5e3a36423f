"""Searches in bf16 with a proof, of three kinds, on small data, and the small limits for them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.vectors import centred_search, sampled_search, search
from pyserini_ance.vectors.centred_search import CentredSearch
from pyserini_ance.vectors.sampled_search import CentredDocuments, SampledSearch
from pyserini_ance.vectors.search import searcher

# From vectors (N, D) the search's class, and what it searches.
Kind = Callable[[torch.Tensor], tuple[Any, Any]]
KINDS: dict[str, Kind] = {
    "centred": lambda documents: (CentredSearch, documents),
    "sampled": lambda documents: (SampledSearch, CentredDocuments(documents)),
    "held": lambda documents: (SampledSearch, CentredDocuments(documents, is_held=True)),
}
LIMITS = {
    centred_search: {"FEWEST_QUERIES": 8},
    sampled_search: {
        "FEWEST_NUMBERS": 8 * 48,
        "FEWEST_QUERIES_IF_HELD": 3,
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


def by_bf16(documents: torch.Tensor, kind: str = "centred") -> Callable:
    """A search in bf16, and in fp32 where there is no proof, as `searcher` makes it."""
    fp32 = searcher(documents, "torch", "cpu", World())
    per_block = None if kind == "held" else 64
    return partial(search._search_many, *KINDS[kind](documents), World(), per_block, fp32)


def proven(documents: torch.Tensor, queries: torch.Tensor, k: int, kind: str = "centred") -> torch.Tensor:
    """Which queries (Q,) need no search in fp32."""
    made, searched = KINDS[kind](documents)
    centred = made(searched, [queries], k)
    list(centred.prepare())
    for first in range(0, len(documents), 1000):
        for _ in centred.update(first, min(first + 1000, len(documents))):
            pass
    return centred.result()[1]
