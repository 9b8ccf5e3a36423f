"""Imports go down only; Pyserini, Java and Faiss stay in the bridge."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from measure_house import run_time_nodes, tree_of

import pyserini_ance

PACKAGE = Path(pyserini_ance.__file__).parent
# From low to high: each package (or top-level module) may import itself and those listed before it.
ORDER = ["random_streams", "storage", "llm", "distributed", "recipe", "data", "encoders", "vectors"]
ORDER += ["negatives", "runs", "evaluation", "trainer", "refresher", "pyserini_bridge", "pipeline"]
ORDER += ["reports", "adapt", "api", "commands", "train", "__main__"]
# Not even downwards: trainer, refresher and the bridge do not import one another; tables read only files.
FORBIDDEN = {(room, "distributed") for room in ("recipe", "data", "encoders", "evaluation")}
FORBIDDEN |= {("refresher", "trainer"), ("pyserini_bridge", "trainer"), ("pyserini_bridge", "refresher")}

IMPORT_ALL = """
import importlib, pkgutil, sys
import pyserini_ance.train
from pyserini_ance.train import main
import pyserini_ance, pyserini_ance.api

for module in pkgutil.walk_packages(pyserini_ance.__path__, "pyserini_ance."):
    if not module.name.startswith("pyserini_ance.pyserini_bridge"):
        importlib.import_module(module.name)
assert "pyserini_ance.vectors.search" in sys.modules
found = [name for name in ("pyserini", "jnius", "jnius_config", "faiss") if name in sys.modules]
print(pyserini_ance.train is pyserini_ance.api.train, main.__module__, found)
"""


def package_of(module: str) -> str | None:
    """The package in `pyserini_ance.package...`; None for the root package and for other libraries."""
    words = module.split(".")
    return words[1] if words[0] == "pyserini_ance" and len(words) > 1 else None


@cache
def imports() -> list[tuple[str, str, str]]:
    """(file, its package, a package that it imports), including imports inside functions."""
    edges = []
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE)
        for node in run_time_nodes(tree_of(path)):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0 and node.module, f"{file}: relative import"
                modules = [node.module]
                if node.module == "pyserini_ance":
                    modules += [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            packages = [package for module in modules if (package := package_of(module))]
            edges += [(str(file), file.with_suffix("").parts[0], package) for package in packages]
    return edges


def test_every_package_is_in_the_order():
    paths = [*PACKAGE.glob("*.py"), *(path.parent for path in PACKAGE.glob("*/__init__.py"))]
    packages = {path.stem for path in paths}
    assert packages - {"__init__"} == set(ORDER)


def test_imports_go_down_only():
    height = {package: position for position, package in enumerate(ORDER)}
    known = [each for each in imports() if each[1] != "__init__" and each[2] in height]
    upwards = [f"{file} imports {name}" for file, package, name in known if height[name] > height[package]]
    assert upwards == []


def test_writers_never_import_readers():
    """What writes runs is below `reports`, which only reads them; nothing imports benchmarks/."""
    writers = set(ORDER[: ORDER.index("reports")])
    assert {"pipeline", "trainer", "refresher", "runs"} <= writers
    found = [(file, imported) for file, package, imported in imports() if package in writers]
    assert [file for file, imported in found if imported == "reports"] == []
    benchmarks = re.compile(r"^\s*(from|import) benchmarks\b", re.MULTILINE)
    assert [path for path in PACKAGE.rglob("*.py") if benchmarks.search(path.read_text("utf-8"))] == []


def test_forbidden_imports_do_not_occur():
    assert [(file, name) for file, package, name in imports() if (package, name) in FORBIDDEN] == []


def test_commands_do_not_import_one_another():
    """But for the console, which imports each by its name."""
    shared = {"console"}
    crossing = [
        (path.name, node.module)
        for path in sorted((PACKAGE / "commands").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("pyserini_ance.commands.")
        and (node.module or "").rpartition(".")[2] not in shared
    ]
    assert crossing == []


LIGHT = """
import sys, pyserini_ance, pyserini_ance.commands.train
heavy = {"torch", "transformers", "faiss", "pyserini", "jnius", "pyserini_ance.api"}
print(sorted(heavy & sys.modules.keys()))
"""
# As a console script begins: the working directory is not on the path. A library's name there has no effect.
OWN_CLASS = """
import sys
from pathlib import Path
Path("ir_measures.py").write_text("raise RuntimeError")
Path("own_formats.py").write_text('''
from pyserini_ance.data.formats.format import Format
class Nothing(Format):
    def raw_data(self):
        return None
''')
sys.path[:] = [entry for entry in sys.path if entry not in ("", str(Path.cwd()))]
from pyserini_ance import __main__
def main():
    import ir_measures
    from pyserini_ance.recipe.components import component_class
    print(component_class("data", "own_formats:Nothing").__name__)
__main__.main = main
__main__.run()
"""
# As `python -m` begins: the working directory is first.
AS_MODULE = OWN_CLASS.replace("sys.path[:] = [", "sys.path[:] = [str(Path.cwd())] + [")
VARIABLE = "import os, pyserini_ance; print(os.environ['{}'])"
SPINS = VARIABLE.format("GOMP_SPINCOUNT")
LOCALE = VARIABLE.format("LC_ALL")
TELEMETRY = VARIABLE.format("ORT_DISABLE_TELEMETRY")


@pytest.mark.parametrize(
    ("program", "variables", "printed"),
    [
        # `train` stays the function, and only the bridge imports Pyserini, Java and Faiss.
        pytest.param(IMPORT_ALL, {}, "True pyserini_ance.commands.train []", id="all modules"),
        pytest.param(LIGHT, {}, "[]", id="the package imports no heavy library"),
        pytest.param(OWN_CLASS, {}, "Nothing", id="classes of the working directory are found"),
        pytest.param(AS_MODULE, {}, "Nothing", id="by `python -m`, too"),
        pytest.param(SPINS, {}, "1000", id="threads spin less"),
        pytest.param(SPINS, {"GOMP_SPINCOUNT": "5"}, "5", id="unless they are told otherwise"),
        pytest.param(LOCALE, {"LC_ALL": "C"}, "C.UTF-8", id="Java reads file names as Python does"),
        pytest.param(LOCALE, {"LC_ALL": "en_US.UTF-8"}, "en_US.UTF-8", id="another locale stays"),
        pytest.param(TELEMETRY, {}, "1", id="onnxruntime keeps to itself"),
    ],
)
def test_a_fresh_interpreter(tmp_path, program, variables, printed):
    own = ("GOMP_SPINCOUNT", "ORT_DISABLE_TELEMETRY")
    given = {name: value for name, value in os.environ.items() if name not in own}
    environment = {**given, "PYTHONPATH": str(PACKAGE.parent), **variables}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == f"{printed}\n", done.stderr[-2000:]
