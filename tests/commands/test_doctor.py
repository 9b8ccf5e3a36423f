import importlib.util
from importlib import metadata

import pytest

from pyserini_ance.commands import doctor

AGAIN = "pip install --force-reinstall --no-deps faiss-cpu (with an NVIDIA GPU: faiss-gpu)"


@pytest.mark.parametrize(("state", "code", "end"), [("warn", 0, "is here"), ("missing", 1, "1 missing")])
def test_findings_with_their_cures(monkeypatch, capsys, state, code, end):
    for name in ("java", "devices", "packages"):
        monkeypatch.setattr(doctor, name, lambda: [])
    monkeypatch.setattr(doctor, "faiss", lambda: [(state, "faiss", "1.2", "pip install faiss")])
    assert doctor.main([]) == code
    shown = f"{state:8}faiss                 1.2\n                              -> pip install faiss\n"
    printed = capsys.readouterr().out
    assert printed.startswith(shown) and printed.endswith(f"{end}\n")


def install(monkeypatch, **versions: str) -> None:
    """A machine that has just these distributions: the version of each; those named faiss own its module."""
    named = {name.replace("_", "-"): version for name, version in versions.items()}
    owners = {"faiss": [name for name in named if name.startswith("faiss")]}

    def version(name: str) -> str:
        if name not in named:
            raise metadata.PackageNotFoundError(name)
        return named[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "packages_distributions", lambda: owners)


@pytest.mark.parametrize(
    ("needed", "version", "state", "words"),
    [
        ("torch>=2.9", "2.13.0+cu130", "ok", "2.13.0+cu130"),
        ("torch>=2.9", "2.8.0", "warn", "2.8.0, outside >=2.9"),
        ("torch", None, "missing", "not installed, needs any version"),
        ("pyserini>=2.1,<3", "2.3.0", "ok", "2.3.0"),
        ("pyserini>=2.1,<3", "2.10.0", "warn", "2.10.0, opens a web address when imported"),
    ],
)
def test_each_package_that_no_extra_needs(monkeypatch, needed, version, state, words):
    monkeypatch.setattr(metadata, "requires", lambda name: [needed, 'faiss-gpu>=1.15; extra == "gpu"'])
    install(monkeypatch, **({needed.partition(">")[0]: version} if version else {}))
    _, _, found = doctor.packages()
    cure = f"pip install '{needed}'" if state == "missing" else found[-1]
    assert found == (state, needed.partition(">")[0], words, cure)


@pytest.mark.parametrize(
    ("packages", "has_files", "value", "cure"),
    [
        ({"faiss_cpu": "1.15.1", "numpy": "2.5.5"}, True, "faiss-cpu 1.15.1", ""),
        (
            {"faiss_gpu": "1.15.1", "faiss_cpu": "1.15.0"},
            True,
            "faiss-cpu 1.15.0, faiss-gpu 1.15.1 are both installed and own the same module",
            "pip uninstall -y faiss-cpu faiss-gpu && pip install faiss-cpu (or faiss-gpu)",
        ),
        ({}, False, "not installed", AGAIN),
        ({"faiss_gpu": "1.15.1"}, False, "faiss-gpu 1.15.1, its files are gone", AGAIN),
    ],
)
def test_one_faiss_is_needed(monkeypatch, packages, has_files, value, cure):
    install(monkeypatch, **packages)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if has_files else None)
    assert list(doctor.faiss()) == [("missing" if cure else "ok", "faiss", value, cure)]
