"""The size of the house: a budget of lines for each room, and for what a reader must hold in the head.

A test that fails here asks for lines to go, not for a higher number. Look for a helper that one caller uses
for three lines, a guard that another guard makes needless, a mechanism that a library in the environment
owns, code that only reads finished runs. A capability that needs the lines raises the number in its own
commit, which says what they buy. `python tests/measure_house.py` prints all figures.
"""

import ast
from pathlib import Path

from measure_house import (
    PATH,
    closure,
    import_lines,
    line_count,
    python_files,
    rooms,
    short_functions_used_once,
)

ROOT = Path(__file__).parents[1]
PACKAGE = python_files(ROOT / "pyserini_ance")
ROOMS = {
    "adapt": 1_372,
    "commands": 1_389,
    "data": 4_721,
    "distributed": 389,
    "encoders": 3_472,
    "evaluation": 543,
    "negatives": 2_902,
    "pipeline": 3_939,
    "pyserini_bridge": 1_295,
    "recipe": 2_242,
    "refresher": 371,
    "reports": 1_601,
    "runs": 1_083,
    "storage": 843,
    "trainer": 3_060,
    "vectors": 1_364,
    "top": 744,
}
WHOLE = {
    "files": 238,
    "classes": 249,
    "short private functions used once": 15,
    "lines of imports": 2_733,
    "lines of the reading path": 1_482,
    "modules that trainer/batch.py imports": 13,
    "lines of benchmarks": 5_487,
    "lines of tests": 33_552,
}


def in_words(name: str, found: float, budget: float) -> str:
    return f"{name}: {found:,} of {budget:,}. Take something out: tests/test_budgets.py says where to look"


def test_every_room_keeps_its_budget():
    found = {room: lines for room, (lines, _) in rooms(ROOT).items()}
    assert found.keys() == ROOMS.keys()
    over = [
        in_words(f"lines of {each}", found[each], ROOMS[each]) for each in ROOMS if found[each] > ROOMS[each]
    ]
    assert not over, "\n".join(over)


def measured() -> dict[str, float]:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE]
    return {
        "files": len(PACKAGE),
        "classes": sum(isinstance(node, ast.ClassDef) for tree in trees for node in ast.walk(tree)),
        "short private functions used once": short_functions_used_once(PACKAGE),
        "lines of imports": sum(map(import_lines, PACKAGE)),
        "lines of the reading path": line_count([ROOT / name for name in PATH]),
        "modules that trainer/batch.py imports": len(closure(ROOT, ROOT / "pyserini_ance/trainer/batch.py")),
        "lines of benchmarks": line_count(python_files(ROOT / "benchmarks")),
        "lines of tests": line_count(python_files(ROOT / "tests")),
    }


def test_the_whole_keeps_its_budgets():
    found = measured()
    assert found.keys() == WHOLE.keys()
    over = [in_words(name, found[name], WHOLE[name]) for name in WHOLE if found[name] > WHOLE[name]]
    assert not over, "\n".join(over)
