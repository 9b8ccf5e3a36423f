"""What a run leaves for Pyserini's own code: the Faiss folder, and (from their files) topics, stock class and command."""

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyserini_ance.pyserini_bridge.command import search_command
from pyserini_ance.pyserini_bridge.ids import refuse_unwritable
from pyserini_ance.pyserini_bridge.stock import stock_class
from pyserini_ance.pyserini_bridge.topics import write_topics
from pyserini_ance.storage.files import write_json, write_whole
from pyserini_ance.storage.folders import whole_folder

__all__ = ["require_faiss", "search_command", "stock_class", "write_index", "write_topics"]
ROWS_PER_BLOCK = 1 << 16


def require_faiss() -> None:
    """Raises RuntimeError when there is no faiss: better known before hours of training than after."""
    if importlib.util.find_spec("faiss") is None:
        raise RuntimeError("faiss is not installed: python -m pip install faiss-cpu, or faiss-gpu where there is an NVIDIA GPU, never both")


def write_index(vectors: np.ndarray | Iterable[tuple[int, np.ndarray]], ids: Sequence[str], folder: Path, about: dict[str, Any]) -> None:
    """Write a Faiss folder as Pyserini reads it: `index` (flat, inner product), `docid`, and `encoder.json` with `about`.

    `vectors`: (N, D) float32, an array or what reads like one, or blocks (start row, (B, D) float32) in row order. The folder appears
    only when complete. Raises ValueError for ids that no run can carry, and when ids and vectors do not match.
    """
    import faiss

    refuse_unwritable(ids, "document")
    index = None
    for start, block in _blocks(vectors):
        index = index or faiss.IndexFlatIP(block.shape[1])
        if start != index.ntotal:
            raise ValueError(f"a block of vectors starts at row {start}, expected row {index.ntotal}")
        index.add(np.ascontiguousarray(block, np.float32))
    if index is None or index.ntotal != len(ids):
        raise ValueError(f"{len(ids)} document ids, but {index.ntotal if index else 0} vectors")
    with whole_folder(Path(folder)) as beside:
        faiss.write_index(index, str(beside / "index"))
        write_whole(beside / "docid", "".join(f"{id}\n" for id in ids))
        write_json(beside / "encoder.json", about)


def _blocks(vectors: np.ndarray | Iterable[tuple[int, np.ndarray]]) -> Iterator[tuple[int, np.ndarray]]:
    if hasattr(vectors, "shape"):
        return ((start, vectors[start : start + ROWS_PER_BLOCK]) for start in range(0, len(vectors), ROWS_PER_BLOCK))
    return iter(vectors)
