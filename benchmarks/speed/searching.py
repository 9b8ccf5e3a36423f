"""Benchmark `mine`: exact search of many queries over vectors, as a refresh does it.

The vectors are drawn from normal distributions around common centres, so that scores are spread as those of
an encoder are, and mapped from disk, as all contenders may read them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.rounds import Contender, Contest, Rounds
from pyserini_ance.encoders.hardware import processor

DOCUMENTS, QUERIES = "documents.npy", "queries.npy"


def mine(options: Mapping[str, Any], folder: Path) -> Contest:
    """The `options["top_k"]` best of `options["documents"]` vectors for `options["searches"]` queries."""
    documents, queries, dimension = (options[key] for key in ("documents", "searches", "dimension"))
    np.save(folder / DOCUMENTS, vectors(documents, dimension, "cpu", 1).numpy())
    np.save(folder / QUERIES, vectors(queries, dimension, "cpu", 2).numpy())
    k = {"k": options["top_k"]}
    title = f"the {k['k']} best of {documents:,} vectors of {dimension} numbers for {queries:,} queries"
    contenders = [Contender("ours", ours, {"backend": "auto", **k})]
    if processor().has_fast_bf16:
        contenders.append(Contender("ours, in fp32", ours, {"backend": "faiss", **k}))
    contenders.append(Contender("faiss IndexFlatIP", faiss, k, ("faiss",), against=True))
    contenders.append(Contender("torch.mm and topk by blocks", plain, k, against=True))
    flops = 2.0 * documents * queries * dimension
    return Contest("mine", title, contenders, flops, recall, "faiss IndexFlatIP")


def vectors(count: int, dimension: int, device: str, seed: int) -> Any:
    """(count, D) float32 of length 1 around common centres, so that scores are spread as an encoder's are."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)
    centres = torch.randn(256, dimension, device=device, generator=torch.Generator(device).manual_seed(0))
    made = torch.empty(count, dimension, device=device)
    for block in made.split(1 << 18):
        chosen = torch.randint(256, (len(block),), device=device, generator=generator)
        block.normal_(generator=generator).add_(centres[chosen])
        block.div_(block.norm(dim=1, keepdim=True))
    return made


def recall(own: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """The share of the reference's rows that were found, over all queries."""
    pairs = zip(own, reference, strict=True)
    return {"recall": sum(len(np.intersect1d(*pair)) for pair in pairs) / reference.size}


def ours(rounds: Rounds, folder: Path, backend: Any, k: int) -> None:
    from pyserini_ance.distributed.world import World
    from pyserini_ance.vectors.search import search_arrays, searcher

    documents, queries = _read(folder)
    search = searcher(documents, backend, "cpu", World())
    for _ in rounds:
        rounds.output = search_arrays(search, queries, k)[1]


def faiss(rounds: Rounds, folder: Path, k: int) -> None:
    import faiss
    import torch

    faiss.omp_set_num_threads(torch.get_num_threads())
    documents, queries = _read(folder)
    index = faiss.IndexFlatIP(documents.shape[1])
    index.add(documents)
    for _ in rounds:
        rounds.output = index.search(queries, k)[1]


def plain(rounds: Rounds, folder: Path, k: int) -> None:
    import torch

    mapped, queries = _read(folder)
    documents, asked = torch.from_numpy(np.array(mapped)), torch.from_numpy(queries)
    for _ in rounds:
        rounds.output = plain_search(documents, k, asked).numpy()


def plain_search(documents: Any, k: int, queries: Any, dtype: Any = None, block_rows: int = 1 << 15) -> Any:
    """(Q, k) rows of tensors (N, D) and (Q, D), as one writes it first: scores of a block of documents, their
    best, and the best of the blocks. Each call makes its copy in `dtype`, a small share of it.
    """
    import torch

    searched = documents.to(dtype or documents.dtype)
    rows = []
    for asked in queries.to(searched.dtype).split(2048):
        scores = asked.new_empty(len(asked), 0)
        found = asked.new_empty((len(asked), 0), dtype=torch.int64)
        for number, block in enumerate(searched.split(block_rows)):
            best, own = (asked @ block.T).topk(min(k, len(block)), dim=1)
            scores = torch.cat([scores, best], 1)
            found = torch.cat([found, own + number * block_rows], 1)
            scores, order = scores.topk(min(k, scores.shape[1]), dim=1)
            found = found.gather(1, order)
        rows.append(found)
    return torch.cat(rows)


def _read(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    return np.load(folder / DOCUMENTS, mmap_mode="r"), np.load(folder / QUERIES)
