"""What made a run: versions, machine, data."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from pyserini_ance import __version__
from pyserini_ance.data.collection import Collection

PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "pyserini", "faiss-cpu", "faiss-gpu", "ir-measures", "numpy", "safetensors")


def environment(device: str, processes: int, collection: Collection) -> dict:
    """Everything that a figure may depend on beside the recipe."""
    threads = torch.get_num_threads()
    return {
        "pyserini_ance": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "threads": threads, "device": device, "processes": processes},
        "data": {
            "digest": collection.digest,
            "documents": len(collection.documents),
            "queries": {name: len(split.queries) for name, split in collection.splits.items()},
            "skipped": collection.skipped,
        },
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
