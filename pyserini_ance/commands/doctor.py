"""`pyserini-ance doctor`: report versions, Java, Faiss and devices, and the cure for whatever is missing.

Versions are read from package metadata; neither Pyserini nor Faiss is imported. A check yields (state, name,
value, cure); `missing`: something needed is absent or broken, `warn`: it works, but not well.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement
from packaging.version import Version

from pyserini_ance import __version__
from pyserini_ance.commands import parsing

GIB = 1 << 30
Findings = Iterator[tuple[str, str, str, str]]


def packages() -> Findings:
    """Python, pyserini_ance, and each package that its metadata requires."""
    yield "ok", "python", f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})", ""
    try:
        required = [Requirement(line) for line in metadata.requires("pyserini_ance") or []]
    except metadata.PackageNotFoundError:
        version = f"{__version__}, run from a folder and not installed"
        yield "missing", "pyserini_ance", version, "pip install -e '.[cpu]'"
        return
    yield "ok", "pyserini_ance", __version__, ""
    for one in (one for one in required if not one.marker):  # an extra's have a marker
        cure = f"pip install '{one}'"
        try:
            installed = metadata.version(one.name)
        except metadata.PackageNotFoundError:
            yield "missing", one.name, f"not installed, needs {one.specifier or 'any version'}", cure
            continue
        if not one.specifier.contains(installed, prereleases=True):
            yield "warn", one.name, f"{installed}, outside {one.specifier}", cure
        elif one.name == "pyserini" and Version(installed) >= Version("2.4"):
            offline = "offline: pip install pyserini==2.3.0"
            yield "warn", one.name, f"{installed}, opens a web address when imported", offline
        else:
            yield "ok", one.name, installed, ""


def faiss() -> Findings:
    """Exactly one package may own the module `faiss`."""
    owners = sorted(set(metadata.packages_distributions().get("faiss", [])))
    names = ", ".join(f"{owner} {metadata.version(owner)}" for owner in owners)
    if len(owners) > 1:
        # Each has overwritten files of the other, and removing one removes shared files: remove both.
        cure = (
            f"pip uninstall -y {' '.join(owners)} && pip install {owners[0]} (or {' or '.join(owners[1:])})"
        )
        yield "missing", "faiss", f"{names} are both installed and own the same module", cure
    elif importlib.util.find_spec("faiss") is None:  # it is not installed, or lost its files with the other
        cure = "pip install --force-reinstall --no-deps faiss-cpu (with an NVIDIA GPU: faiss-gpu)"
        yield "missing", "faiss", f"{names}, its files are gone" if owners else "not installed", cure
    else:
        yield "ok", "faiss", names, ""


def java() -> Findings:
    from pyserini_ance.pyserini_bridge.java import choose_java

    try:
        choice = choose_java()
    except RuntimeError as error:
        yield "missing", "java", "none that Pyserini can use", str(error)
        return
    yield "ok", "java", choice.reason, ""
    stock = "run" if choice.runs_stock_commands else "need a full JDK 21; here: pyserini-ance search ..."
    yield "ok", "", f"Pyserini's own search commands {stock}", ""


def devices() -> Findings:
    """The processor and the GPUs, or the reason why torch cannot be imported."""
    try:
        import torch
    except (ImportError, OSError) as error:
        yield "missing", "torch", f"cannot be imported: {error}", "pip install --force-reinstall torch"
        return
    from pyserini_ance.encoders import hardware

    bf16 = "bf16" if hardware.processor().has_fast_bf16 else "no fast bf16: encodes in fp32"
    memory_gib = hardware.memory_bytes() / GIB
    yield "ok", "cpu", f"{hardware.usable_cores()} cores, {memory_gib:.0f} GiB memory, {bf16}", ""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for index in range(count):
        gpu = torch.cuda.get_device_properties(index)
        with torch.cuda.device(index):
            fastest = hardware.resolve_precision("auto", "cuda")
        yield "ok", f"gpu {index}", f"{gpu.name}, {gpu.total_memory / GIB:.0f} GiB, {fastest}", ""
    if not count and os.path.exists("/dev/nvidiactl"):
        cure = f"this torch needs a driver for CUDA {torch.version.cuda}; see nvidia-smi"
        yield "warn", "gpu", "present, but torch cannot use it", cure
    elif not count:
        yield "ok", "gpu", "none; the processor is used", ""


@parsing.command("pyserini-ance doctor")
def main() -> int:
    """Report versions, Java, Faiss and devices, and the cure for whatever is missing.

    Exit code: 0, or 1 if something needed is missing.
    """
    missing = 0
    for check in (packages, faiss, java, devices):
        for state, name, value, cure in check():
            print(f"{state:<8}{name:<22}{value}", flush=True)
            if cure:
                print(f"{'':<30}-> {cure}", flush=True)
            missing += state == "missing"
    print(f"{missing} missing" if missing else "everything needed is here")
    return 1 if missing else 0
