import subprocess
import sys

import pytest

from pyserini_ance.__main__ import COMMANDS

HEAVY = ("accelerate", "datasets", "faiss", "ir_measures", "jnius", "matplotlib", "pandas", "pyserini")
HEAVY += ("scipy", "sklearn", "torch", "transformers")
PROGRAM = """
import sys
from pyserini_ance import __main__

for sys.argv[1:] in {calls!r}:
    try:
        __main__.main()
    except SystemExit:
        pass
    print("imported:", *(name for name in {names!r} if name in sys.modules))
"""


def imported(*calls: list[str], names: tuple[str, ...]) -> list[list[str]]:
    """Those of the libraries that a fresh process has imported when each command ends."""
    program = PROGRAM.format(calls=calls, names=names)
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-2000:]
    lines = [line.split()[1:] for line in process.stdout.splitlines() if line.startswith("imported:")]
    assert len(process.stdout.splitlines()) > 2 * len(lines), "a command has printed nothing"
    return lines


def test_help_imports_no_heavy_library():
    calls = [[command, "--help"] for command in COMMANDS]
    assert dict(zip(COMMANDS, imported(*calls, names=HEAVY), strict=True)) == {name: [] for name in COMMANDS}
    assert imported(["--help"], names=(*HEAVY, "numpy", "pydantic", "yaml")) == [[]]


@pytest.mark.long
def test_a_plan_and_doctor_import_neither_java_nor_faiss(tmp_path):
    plan = ["train", "demo/ance", "--print", f"cache={tmp_path}", "data.packages=[peft]"]
    assert imported(plan, ["doctor"], names=("faiss", "jnius", "pyserini")) == [[], []]
