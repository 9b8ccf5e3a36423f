"""`pyserini-ance doctor`: report versions, Java, Faiss and devices, and the cure for whatever is missing.

Versions are read from package metadata; neither Pyserini nor Faiss is imported.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Literal, NamedTuple

from packaging.requirements import Requirement
from packaging.version import Version

from pyserini_ance import __version__
from pyserini_ance.commands import parsing

GIB = 1 << 30
INSTALL = "pip install -e '.[cpu]'"


class Finding(NamedTuple):
    """The result of one check. `missing`: something needed is absent or broken; `warn`: it works, but not
    well."""

    name: str
    value: str
    state: Literal["ok", "warn", "missing"] = "ok"
    cure: str = ""

    def __str__(self) -> str:
        line = f"{self.state:<8}{self.name:<16}{self.value}"
        return f"{line}\n{'':<24}-> {self.cure}" if self.cure else line


def packages() -> Iterator[Finding]:
    """Python, pyserini_ance, and each package that its metadata requires."""
    yield Finding("python", f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})")
    try:
        required = [Requirement(line) for line in metadata.requires("pyserini_ance") or []]
    except metadata.PackageNotFoundError:
        version = f"{__version__}, run from a folder and not installed"
        yield Finding("pyserini_ance", version, "missing", INSTALL)
        return
    yield Finding("pyserini_ance", __version__)
    for one in required:
        if one.marker:  # of an extra
            continue
        installed = _installed(one.name)
        cure = f"pip install '{one}'"
        if installed is None:
            needs = one.specifier or "any version"
            yield Finding(one.name, f"not installed, needs {needs}", "missing", cure)
        elif not one.specifier.contains(installed, prereleases=True):
            yield Finding(one.name, f"{installed}, outside {one.specifier}", "warn", cure)
        elif one.name == "pyserini" and Version(installed) >= Version("2.4"):
            offline = "offline: pip install pyserini==2.3.0"
            yield Finding(one.name, f"{installed}, opens a web address when imported", "warn", offline)
        else:
            yield Finding(one.name, installed)


def faiss() -> Finding:
    """Exactly one package may own the module `faiss`."""
    owners = sorted(set(metadata.packages_distributions().get("faiss", [])))
    names = ", ".join(f"{owner} {_installed(owner)}" for owner in owners)
    if not owners:
        cure = "pip install faiss-cpu (with an NVIDIA GPU: faiss-gpu)"
        return Finding("faiss", "not installed", "missing", cure)
    if len(owners) > 1:
        # Each has overwritten files of the other, and removing one removes shared files: remove both.
        others = " or ".join(owners[1:])
        cure = f"pip uninstall -y {' '.join(owners)} && pip install {owners[0]} (or {others})"
        return Finding("faiss", f"{names} are both installed and own the same module", "missing", cure)
    if importlib.util.find_spec("faiss") is None:
        cure = f"pip install --force-reinstall --no-deps {owners[0]}"
        return Finding("faiss", f"{names}, its files are gone", "missing", cure)
    return Finding("faiss", names)


def java() -> Iterator[Finding]:
    from pyserini_ance.pyserini_bridge.java import choose_java

    try:
        choice = choose_java()
    except RuntimeError as error:
        yield Finding("java", "none that Pyserini can use", "missing", str(error))
        return
    yield Finding("java", choice.reason)
    stock = "run" if choice.runs_stock_commands else "need a full JDK 21; here: pyserini-ance search ..."
    yield Finding("", f"Pyserini's own search commands {stock}")


def devices() -> Iterator[Finding]:
    """The processor and the GPUs, or the reason why torch cannot be imported."""
    try:
        import torch
    except (ImportError, OSError) as error:
        reinstall = "pip install --force-reinstall torch"
        yield Finding("torch", f"cannot be imported: {error}", "missing", reinstall)
        return
    from pyserini_ance.encoders.hardware import (
        cpu_has_fast_bf16,
        memory_bytes,
        resolve_precision,
        usable_cores,
    )

    bf16 = "bf16" if cpu_has_fast_bf16() else "no fast bf16: encodes in fp32"
    yield Finding("cpu", f"{usable_cores()} cores, {memory_bytes() / GIB:.0f} GiB memory, {bf16}")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for index in range(count):
        gpu = torch.cuda.get_device_properties(index)
        with torch.cuda.device(index):
            fastest = resolve_precision("auto", "cuda")
        yield Finding(f"gpu {index}", f"{gpu.name}, {gpu.total_memory / GIB:.0f} GiB, {fastest}")
    if not count and os.path.exists("/dev/nvidiactl"):
        cure = f"this torch needs a driver for CUDA {torch.version.cuda}; see nvidia-smi"
        yield Finding("gpu", "present, but torch cannot use it", "warn", cure)
    elif not count:
        yield Finding("gpu", "none; the processor is used")


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@parsing.command("pyserini-ance doctor")
def main() -> int:
    """Report versions, Java, Faiss and devices, and the cure for whatever is missing.

    Exit code: 0, or 1 if something needed is missing.
    """
    missing = 0
    for findings in (packages(), [faiss()], java(), devices()):
        for finding in findings:
            print(finding, flush=True)
            missing += finding.state == "missing"
    print(f"{missing} missing" if missing else "everything needed is here")
    return 1 if missing else 0
