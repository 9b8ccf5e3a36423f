"""Checks of what is installed: our own requirements, faiss, Java. Read from package metadata; nothing is imported."""

import importlib.util
import sys
from importlib import metadata

from packaging.requirements import Requirement
from packaging.version import Version

from pyserini_ance import __version__
from pyserini_ance.health.finding import Finding

INSTALL = "pip install -e '.[cpu]'"


def python() -> list[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 12):
        return [Finding("python", version, "missing", "Pyserini 2 needs Python >= 3.12")]
    return [Finding("python", f"{version} ({sys.executable})")]


def requirements() -> list[Finding]:
    """One finding for us and one for each package that our own metadata says is needed."""
    try:
        needed = [Requirement(line) for line in metadata.requires("pyserini_ance") or []]
    except metadata.PackageNotFoundError:
        return [Finding("pyserini_ance", f"{__version__}, run from a folder and not installed", "missing", INSTALL)]
    return [Finding("pyserini_ance", __version__), *(requirement(one) for one in needed if not one.marker)]


def requirement(needed: Requirement) -> Finding:
    installed = _installed(needed.name)
    line = f"pip install '{needed}'"
    if installed is None:
        return Finding(needed.name, f"not installed, needs {needed.specifier or 'any version'}", "missing", line)
    if not needed.specifier.contains(installed, prereleases=True):
        return Finding(needed.name, f"{installed}, outside {needed.specifier}", "warn", line)
    if needed.name == "pyserini" and Version(installed) >= Version("2.4"):
        return Finding("pyserini", f"{installed}, opens a web address when imported", "warn", "offline: pip install pyserini==2.3.0")
    return Finding(needed.name, installed)


def faiss() -> list[Finding]:
    """Exactly one package may own the module `faiss`."""
    owners = sorted(set(metadata.packages_distributions().get("faiss", [])))
    names = ", ".join(f"{owner} {_installed(owner)}" for owner in owners)
    if not owners:
        return [Finding("faiss", "not installed", "missing", "pip install faiss-cpu (with an NVIDIA GPU: faiss-gpu)")]
    if len(owners) > 1:
        # Either overwrote files of the other, and removing one now takes shared files away: remove both.
        cure = f"pip uninstall -y {' '.join(owners)} && pip install {owners[0]} (or {' or '.join(owners[1:])})"
        return [Finding("faiss", f"{names} are both installed and own the same module", "missing", cure)]
    if importlib.util.find_spec("faiss") is None:
        return [Finding("faiss", f"{names}, its files are gone", "missing", f"pip install --force-reinstall --no-deps {owners[0]}")]
    return [Finding("faiss", names)]


def java() -> list[Finding]:
    from pyserini_ance.pyserini_bridge.java import choose_java

    try:
        choice = choose_java()
    except RuntimeError as error:
        return [Finding("java", "none that Pyserini can use", "missing", str(error))]
    stock = "run" if choice.runs_stock_commands else "need a full JDK 21; here: python -m pyserini_ance.search ..."
    return [Finding("java", choice.why), Finding("", f"Pyserini's own search commands {stock}")]


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
