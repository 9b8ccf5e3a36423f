"""Provenance of a run: versions, machine, data and commit, and the hash of its settings."""

import os
import platform
import resource
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyserini_ance
from pyserini_ance.recipe.components import absolute
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir, run_folder
from pyserini_ance.storage.files import sha256_json

if TYPE_CHECKING:
    from pyserini_ance.data.collection import Collection
    from pyserini_ance.distributed.world import World

PACKAGES = (
    "torch transformers tokenizers sentence-transformers accelerate pyserini faiss-cpu faiss-gpu ir-measures "
    "numpy safetensors peft torchao"
)
MEMORY_KINDS = ("process", "GPU", "largest child")
GIT_SECONDS = 5  # a run does not wait longer for its commit
# Keys of where a run computes and is seen, not of what it computes; as pydantic includes or excludes them.
RUNTIME_KEYS: dict[str, Any] = {
    **dict.fromkeys(("cache", "device", "threads", "shard", "refresher", "log_with"), True),
    "encoding": {"engine"},
}


def environment(device: str, processes: int, collection: "Collection") -> dict:
    """Everything besides the recipe that a measure may depend on."""
    import torch

    from pyserini_ance.encoders.hardware import resolve_precision

    machine = {"cores": os.cpu_count(), "processor": platform.machine(), "threads": torch.get_num_threads()}
    machine["auto_precision"] = resolve_precision("auto", device)
    return {
        "command": command_line(),
        "pyserini_ance": pyserini_ance.__version__,
        "commit": commit_of(Path(pyserini_ance.__file__).parent),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES.split()},
        "machine": {**machine, "device": device, "processes": processes},
        "data": {
            "digest": collection.digest,
            "documents": len(collection.documents),
            "queries": {name: len(split.queries) for name, split in collection.splits.items()},
            "skipped": collection.skipped,
        },
    }


def command_line() -> str:
    """The command that started this process, as one types it."""
    module = sys.modules["__main__"].__spec__  # of `python -m`
    program = ["python", "-m", module.name.removesuffix(".__main__")] if module else [Path(sys.argv[0]).name]
    return shlex.join([*program, *sys.argv[1:]])


def highest_peak_bytes(world: "World") -> dict[str, int]:
    """The most memory that a process of `world` has had so far, what torch allocated on its GPU, and its
    largest child (Java for BM25, a refresher), by kind. Called by all processes.
    """
    import torch

    whose = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    own, child = (resource.getrusage(who).ru_maxrss << 10 for who in whose)
    gpu = torch.cuda.max_memory_allocated(world.device) if world.device.startswith("cuda") else 0
    peaks = torch.cat(world.gather(torch.tensor([[own, gpu, child]], dtype=torch.int64)))
    return dict(zip(MEMORY_KINDS, peaks.amax(0).tolist(), strict=True))


def commit_of(package: Path) -> dict | None:
    """The git commit that a package's folder is checked out from, and whether its files have `changed` since.

    New files count as changes. None when there is no git or no commit, or when the folder is inside a
    repository that does not track it, as an environment of installed packages may be.
    """
    try:
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        (commit,) = _git(package, "rev-parse", "HEAD")
        changes = _git(package, "status", "--porcelain", "--untracked-files=all", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return {"hash": commit, "changed": bool(changes)}


def _git(folder: Path, *arguments: str) -> list[str]:
    """Lines of git's output; git writes nothing, not even its index of the files."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=GIT_SECONDS
    ).stdout.splitlines()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def config_hash(recipe: Recipe) -> str:
    """A digest of all settings that may change a result: runs with equal hashes differ by chance alone.

    Neither the seed nor the seeds of the runs that a recipe starts from count. A run that does not exist
    counts by its name.
    """
    return sha256_json(hashed_settings(recipe))[:12]


def hashed_settings(recipe: Recipe) -> dict[str, Any]:
    """The settings that `config_hash` is a digest of, as JSON values."""
    irrelevant = dict.fromkeys(("seed", "save_total_limit", "expect"), True)
    # A search finds the same documents by each library; by some numbers of the vectors it may find others.
    is_exact = isinstance(recipe.encoding.search, str)
    exclude = {**irrelevant, **RUNTIME_KEYS, "encoding": {"engine", *["search"] * is_exact}}
    settings: dict[str, Any] = absolute(recipe).model_dump(mode="json", exclude=exclude)
    for name, init_from in source_runs(recipe).items():
        if (run := source_run(init_from)).recipe.exists():
            settings["stages"][name]["init_from"] = {
                "config_hash": config_hash(run.read_recipe()),
                "stage": init_from.stage,
                "allow_changes": init_from.allow_changes,
            }
    return settings


def seeds_of(recipe: Recipe) -> tuple[int, ...]:
    """The seed of a run, then those of the runs that it starts from: what `config_hash` leaves out."""
    sources = map(source_run, source_runs(recipe).values())
    inherited = (seeds_of(run.read_recipe()) for run in sources if run.recipe.exists())
    return (recipe.seed, *(seed for seeds in inherited for seed in seeds))


def source_run(init_from: InitFrom) -> RunDir:
    """The run that a stage takes its initial weights from: `folder`, or the default directory of `recipe`. It
    does not exist if `folder` is that of a saved encoder."""
    if init_from.recipe:
        return RunDir(run_folder(load(init_from.recipe).name))
    assert init_from.folder is not None, "initial weights from an earlier stage have no run"
    return RunDir(init_from.folder)


def source_runs(recipe: Recipe) -> dict[str, InitFrom]:
    """The stages' initial weights that come from runs, by stage."""
    return {
        name: stage.init_from
        for name, stage in recipe.stages.items()
        if isinstance(stage.init_from, InitFrom) and stage.init_from.is_external
    }
