"""What imports what: heavy packages stay in the bridge, and rooms import only downwards."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pyserini_ance

PACKAGE = Path(pyserini_ance.__file__).parent
# Each room may import from its own row and from those below it.
ROWS = [
    {
        "train", "prepare", "refresh", "encode", "search", "evaluate", "coverage", "cases", "rerank", "fuse", "answer", "compare", "convert",
        "doctor",
    },
    {"experiment", "health", "cli"},
    {"trainer", "refresher", "pyserini_bridge", "measures"},
    {"negatives", "runs"},
    {"vectors"},
    {"encoders", "data", "rerankers", "readers"},
    {"recipe"},
    {"distributed"},
    {"storage"},
]
# Within a row: trainer and refresher meet only in a run directory, and nobody imports back.
NEVER = {
    ("trainer", "refresher"), ("refresher", "trainer"), ("trainer", "pyserini_bridge"), ("refresher", "pyserini_bridge"),
    ("measures", "refresher"), ("negatives", "runs"), ("data", "encoders"), ("experiment", "health"), ("health", "experiment"),
}  # fmt: skip

IMPORT_ALL = """
import importlib, pkgutil, sys
import pyserini_ance

for module in pkgutil.walk_packages(pyserini_ance.__path__, "pyserini_ance."):
    if not module.name.startswith("pyserini_ance.pyserini_bridge"):
        importlib.import_module(module.name)
        print(module.name)
print([name for name in ("pyserini", "jnius", "jnius_config", "faiss") if name in sys.modules])
"""


def room_of(module: str) -> str | None:
    """The room of `pyserini_ance.room...`; None for the package itself and for anything else."""
    parts = module.split(".")
    return parts[1] if parts[0] == "pyserini_ance" and len(parts) > 1 else None


def imports() -> list[tuple[str, str, str]]:
    """(file, its room, a room that it imports), imports inside functions included."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{inside}: relative import"
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names if node.module == "pyserini_ance")]
            else:
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [(str(inside), inside.with_suffix("").parts[0], room) for room in map(room_of, names) if room]
    return found


def test_every_room_has_its_place():
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__"} - set().union(*ROWS) == set()


def test_imports_go_down_only():
    height = {room: -row for row, rooms in enumerate(ROWS) for room in rooms}
    upwards = [
        f"{file} imports {to}"
        for file, room, to in imports()
        if room != "__init__" and to in height and (height[to] > height[room] or (room, to) in NEVER)
    ]
    assert upwards == []


def test_commands_do_not_import_one_another():
    assert [(file, to) for file, room, to in imports() if room != to and {room, to} <= ROWS[0]] == []


@pytest.fixture(scope="module")
def imported() -> list[str]:
    """What a fresh process prints that imports every module but the bridge's."""
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_everything_but_the_bridge_leaves_pyserini_java_and_faiss_alone(imported):
    assert {"pyserini_ance.train", "pyserini_ance.trainer.trainer", "pyserini_ance.vectors.search"} <= set(imported)
    assert imported[-1] == "[]"


def test_the_package_itself_imports_nothing_heavy():
    program = "import sys, pyserini_ance, pyserini_ance.train; print([m for m in ('torch', 'transformers', 'faiss') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
