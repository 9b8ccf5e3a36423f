import sys

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
