"""What made a run: versions, machine, data."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import pyserini_ance
from pyserini_ance.data.collection import Collection

PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "pyserini", "faiss-cpu", "faiss-gpu", "ir-measures", "numpy", "safetensors")
GIT_SECONDS = 5  # a run does not wait longer for its commit


def environment(device: str, processes: int, collection: Collection) -> dict:
    """Everything that a figure may depend on beside the recipe."""
    threads = torch.get_num_threads()
    return {
        "pyserini_ance": pyserini_ance.__version__,
        "commit": commit_of(Path(pyserini_ance.__file__).parent),
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


def commit_of(package: Path) -> dict | None:
    """The git commit that a package's folder is checked out from, and whether its files have `changed` since, new ones too.

    None where it is not: there is no git, no commit, or the folder only lies within a repository, as an environment of installed packages may.
    """
    try:
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        branch, *changes = _git(package, "status", "--porcelain=v2", "--branch", "--untracked-files=all", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    hash = branch.removeprefix("# branch.oid ")
    return {"hash": hash, "changed": not all(line.startswith("#") for line in changes)} if hash != "(initial)" else None


def _git(folder: Path, *arguments: str) -> list[str]:
    """Lines of what it says; it writes nothing, not even what it has learnt of the files."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=GIT_SECONDS).stdout.splitlines()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
