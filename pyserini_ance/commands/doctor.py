"""`pyserini-ance doctor`: report versions, Java, Faiss and devices, and the cure for whatever is missing.

Versions are read from package metadata; neither Pyserini nor Faiss is imported.
"""

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

from packaging.requirements import Requirement
from packaging.version import Version

from pyserini_ance import __version__
from pyserini_ance.commands import parsing

GIB = 1 << 30
INSTALL = "pip install -e '.[cpu]'"
SOMETHING_MISSING = 1


@dataclass(frozen=True)
class Finding:
    """The result of one check. `missing`: something needed is absent or broken; `warn`: it works, but not
    well."""

    name: str
    value: str
    state: Literal["ok", "warn", "missing"] = "ok"
    cure: str = ""

    def __str__(self) -> str:
        line = f"{self.state:<8}{self.name:<16}{self.value}"
        return f"{line}\n{'':<24}-> {self.cure}" if self.cure else line


def python() -> list[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 12):  # noqa: UP036 - a run from the sources is not checked by pip
        return [Finding("python", version, "missing", "Pyserini 2 needs Python >= 3.12")]
    return [Finding("python", f"{version} ({sys.executable})")]


def requirements() -> list[Finding]:
    """One finding for pyserini_ance, and one for each package that its metadata requires."""
    try:
        required = [Requirement(line) for line in metadata.requires("pyserini_ance") or []]
    except metadata.PackageNotFoundError:
        version = f"{__version__}, run from a folder and not installed"
        return [Finding("pyserini_ance", version, "missing", INSTALL)]
    needed = [requirement(one) for one in required if not one.marker]
    return [Finding("pyserini_ance", __version__), *needed]


def requirement(required: Requirement) -> Finding:
    name, installed, cure = required.name, _installed(required.name), f"pip install '{required}'"
    if installed is None:
        needs = required.specifier or "any version"
        return Finding(name, f"not installed, needs {needs}", "missing", cure)
    if not required.specifier.contains(installed, prereleases=True):
        return Finding(name, f"{installed}, outside {required.specifier}", "warn", cure)
    if name == "pyserini" and Version(installed) >= Version("2.4"):
        offline = "offline: pip install pyserini==2.3.0"
        return Finding(name, f"{installed}, opens a web address when imported", "warn", offline)
    return Finding(name, installed)


def faiss() -> list[Finding]:
    """Exactly one package may own the module `faiss`."""
    owners = sorted(set(metadata.packages_distributions().get("faiss", [])))
    names = ", ".join(f"{owner} {_installed(owner)}" for owner in owners)
    if not owners:
        cure = "pip install faiss-cpu (with an NVIDIA GPU: faiss-gpu)"
        return [Finding("faiss", "not installed", "missing", cure)]
    if len(owners) > 1:
        # Each has overwritten files of the other, and removing one removes shared files: remove both.
        others = " or ".join(owners[1:])
        cure = f"pip uninstall -y {' '.join(owners)} && pip install {owners[0]} (or {others})"
        return [Finding("faiss", f"{names} are both installed and own the same module", "missing", cure)]
    if importlib.util.find_spec("faiss") is None:
        cure = f"pip install --force-reinstall --no-deps {owners[0]}"
        return [Finding("faiss", f"{names}, its files are gone", "missing", cure)]
    return [Finding("faiss", names)]


def java() -> list[Finding]:
    from pyserini_ance.pyserini_bridge.java import choose_java

    try:
        choice = choose_java()
    except RuntimeError as error:
        return [Finding("java", "none that Pyserini can use", "missing", str(error))]
    stock = "run" if choice.runs_stock_commands else "need a full JDK 21; here: pyserini-ance search ..."
    return [Finding("java", choice.reason), Finding("", f"Pyserini's own search commands {stock}")]


def devices() -> list[Finding]:
    """The processor and the GPUs, or the reason why torch cannot be imported."""
    try:
        import torch  # noqa: F401 - the checks below need it
    except (ImportError, OSError) as error:
        reinstall = "pip install --force-reinstall torch"
        return [Finding("torch", f"cannot be imported: {error}", "missing", reinstall)]
    return [*processor(), *gpus()]


def processor() -> list[Finding]:
    from pyserini_ance.encoders.hardware import cpu_has_fast_bf16, memory_bytes, usable_cores

    bf16 = "bf16" if cpu_has_fast_bf16() else "no fast bf16: encodes in fp32"
    return [Finding("cpu", f"{usable_cores()} cores, {memory_bytes() / GIB:.0f} GiB memory, {bf16}")]


def gpus() -> list[Finding]:
    import torch

    if torch.cuda.is_available():
        return [_gpu(index) for index in range(torch.cuda.device_count())]
    if os.path.exists("/dev/nvidiactl"):
        cure = f"this torch needs a driver for CUDA {torch.version.cuda}; see nvidia-smi"
        return [Finding("gpu", "present, but torch cannot use it", "warn", cure)]
    return [Finding("gpu", "none; the processor is used")]


def _gpu(index: int) -> Finding:
    import torch

    from pyserini_ance.encoders.hardware import resolve_precision

    properties = torch.cuda.get_device_properties(index)
    with torch.cuda.device(index):
        fastest = resolve_precision("auto", "cuda")
    return Finding(f"gpu {index}", f"{properties.name}, {properties.total_memory / GIB:.0f} GiB, {fastest}")


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


CHECKS = (python, requirements, faiss, java, devices)


@parsing.command("pyserini-ance doctor")
def main() -> int:
    """Report versions, Java, Faiss and devices, and the cure for whatever is missing.

    Exit code: 0, or 1 if something needed is missing.
    """
    return report(CHECKS)


def report(checks: Sequence[Callable[[], list[Finding]]]) -> int:
    """Print the findings of all checks; returns 1 if something needed is missing, else 0."""
    missing = 0
    for check in checks:
        for finding in check():
            print(finding)
            missing += finding.state == "missing"
    print(f"{missing} missing" if missing else "everything needed is here")
    return SOMETHING_MISSING if missing else 0
