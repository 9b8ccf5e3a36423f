"""Measure the size of the house: lines, files, classes, imports, commands, keys, and the path of one step.

    python tests/measure_house.py [CHECKOUT ...] [--step]

Prints a column for each checkout (default: this one). Everything is read from the sources, except commands,
options and recipe keys, which the checkout's own code prints, and `--step`: it trains demo/ance on the CPU
and traces one step of the stage `ance`.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HERE = Path(__file__).parents[1]
# DESIGN's path, each file calling the next.
STEPS = ("trainer", "batch", "step", "objective", "refresh")
PATH = ["recipes/_methods/ance.yaml", *(f"pyserini_ance/trainer/{name}.py" for name in STEPS)]
PATH += ["pyserini_ance/refresher/refresher.py", "pyserini_ance/negatives/ann.py"]
SHORT_BODY = 3  # lines
NOT_BY_HAND = ("recipe-reference.md", "recipes.md")

# Runs in the checkout: traces the functions of the package that one training step enters.
STEP = """
import runpy, sys, json, threading
from pathlib import Path
root, out = str(Path("pyserini_ance").resolve()) + "/", sys.argv.pop(1)
modules = set()
def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(root):
        modules.add(frame.f_code.co_filename)
from pyserini_ance.trainer.trainer import StageTrainer
step = StageTrainer._train_step
def traced(self, number, *rest):
    if self.name != "ance" or number != 4:
        return step(self, number, *rest)
    sys.setprofile(profile); threading.setprofile(profile)
    try:
        return step(self, number, *rest)
    finally:
        sys.setprofile(None); threading.setprofile(None)
        Path(out).write_text(json.dumps(sorted(modules)))
StageTrainer._train_step = traced
runpy.run_module("pyserini_ance.train", run_name="__main__")
"""


def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def line_count(paths: list[Path]) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in paths)


def rooms(root: Path) -> dict[str, tuple[int, int]]:
    """{room: (lines, files)} of the package's folders; `top` has its single files."""
    package = root / "pyserini_ance"
    folders = [each for each in sorted(package.iterdir()) if (each / "__init__.py").exists()]
    counts = {each.name: (line_count(python_files(each)), len(python_files(each))) for each in folders}
    top = sorted(package.glob("*.py"))
    return {**counts, "top": (line_count(top), len(top))}


def run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below `node` but those under `if TYPE_CHECKING:`."""
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    for child in node.orelse if is_for_types else ast.iter_child_nodes(node):
        yield child
        yield from run_time_nodes(child)


def imported_modules(root: Path, path: Path) -> set[Path]:
    """The files of the package that the module at `path` imports, also inside functions."""
    names = set()
    for node in run_time_nodes(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    places = [root / name.replace(".", "/") for name in names if name.startswith("pyserini_ance.")]
    found = [place.with_suffix(".py") for place in places] + [place / "__init__.py" for place in places]
    return {file for file in found if file.is_file() and file.stat().st_size}


def closure(root: Path, path: Path) -> set[Path]:
    """All files of the package that importing `path` may lead to, but itself."""
    reached, waiting = set(), [path]
    while waiting:
        new = imported_modules(root, waiting.pop()) - reached
        reached |= new
        waiting += new
    return reached - {path}


def import_lines(path: Path) -> int:
    nodes = [node for node in ast.walk(tree_of(path)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return sum(node.end_lineno - node.lineno + 1 for node in nodes)


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of the body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def short_functions_used_once(paths: list[Path]) -> int:
    """Private functions and methods whose body has three lines or less and whose name is used once."""
    uses = Counter(word for path in paths for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))
    count = 0
    for path in paths:
        for node in ast.walk(tree_of(path)):
            is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            if not (is_function and node.name.startswith("_") and not node.name.startswith("__")):
                continue
            count += body_lines(node) <= SHORT_BODY and uses[node.name] <= 2  # its own line, and a use
    return count


def output_of(root: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200", "TERM": "dumb"}
    arguments = [sys.executable, *command]
    ended = subprocess.run(arguments, cwd=root, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)[-200:]} in {root}:\n{ended.stderr[-2000:]}")
    return ended.stdout


def commands(root: Path) -> list[str]:
    text = output_of(root, "-m", "pyserini_ance", "--help")
    found = re.findall(r"^[ |│]+([a-z][a-z-]+)  +\S", text, re.MULTILINE)
    return [name for name in dict.fromkeys(found) if name != "options"]


def long_options(root: Path, names: list[str]) -> set[str]:
    """The distinct long options; `--no-x` is the same as `--x`."""
    texts = [output_of(root, "-m", "pyserini_ance", name, "--help") for name in names]
    before_examples = [re.split(r"\n *[Ee]xample:", text)[0] for text in texts]
    found = {each for text in before_examples for each in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text)}
    found = {each for each in found if not (each.startswith("--no-") and f"--{each[5:]}" in found)}
    return found - {"--help"}


def recipe_keys(root: Path) -> int:
    """The rows of keys in the recipe reference."""
    file, generator = root / "docs" / "recipe-reference.md", root / "docs" / "hooks" / "recipe_reference.py"
    text = output_of(root, str(generator)) if generator.exists() else file.read_text(encoding="utf-8")
    return len(re.findall(r"^\| `", text, re.MULTILINE))


def words_by_hand(root: Path) -> int:
    docs = [*(root / "docs" / "guides").glob("*.md"), *(root / "docs" / "lab-notes").glob("*.md")]
    docs += (root / "docs").glob("*.md")
    return sum(len(path.read_text(encoding="utf-8").split()) for path in docs if path.name not in NOT_BY_HAND)


def step_modules(root: Path) -> list[Path]:
    """The files of ours that one CPU step of demo/ance enters."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "modules.json"
        overrides = ["data.max_documents=400", "precision=fp32", "encoding.precision=fp32"]
        overrides += ["stages.bm25-neg.steps=2", "stages.ance.steps=6", "stages.ance.refresh.every_steps=6"]
        overrides += ["stages.ance.evaluate=null", f"cache={folder}/cache", "--output", f"{folder}/run"]
        output_of(root, "-c", STEP, str(out), "demo/ance", *overrides)
        return [Path(name) for name in json.loads(out.read_text())]


def measured(root: Path = HERE) -> dict[str, int]:
    """The figures that have a budget, but for those of rooms."""
    package = python_files(root / "pyserini_ance")
    nodes = (node for path in package for node in ast.walk(tree_of(path)))
    return {
        "files": len(package),
        "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
        "short private functions used once": short_functions_used_once(package),
        "lines of imports": sum(map(import_lines, package)),
        "lines of the reading path": line_count([root / name for name in PATH]),
        "modules that trainer/batch.py imports": len(closure(root, root / "pyserini_ance/trainer/batch.py")),
        "lines of benchmarks": line_count(python_files(root / "benchmarks")),
        "lines of tests": line_count(python_files(root / "tests")),
    }


def measure(root: Path, with_step: bool) -> dict[str, str]:
    lines, found, names = line_count(python_files(root / "pyserini_ance")), measured(root), commands(root)
    values = {
        "lines of the package": f"{lines:,}",
        **{name: f"{value:,}" for name, value in found.items()},
        "imports, share of lines": f"{found['lines of imports'] / lines:.1%}",
        "commands": f"{len(names)}",
        "options": f"{len(long_options(root, names))}",
        "recipe keys": f"{recipe_keys(root)}",
        "docs by hand, words": f"{words_by_hand(root):,}",
    }
    if with_step:
        modules = step_modules(root)
        values["one step, modules"] = f"{len(modules)}"
        values["one step, lines of these"] = f"{line_count(modules):,}"
    of_rooms = {f"room {name}": f"{count:,} / {files}" for name, (count, files) in rooms(root).items()}
    return values | of_rooms


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, nargs="*", default=[HERE])
    parser.add_argument("--step", action="store_true", help="also train demo/ance and trace one step")
    args = parser.parse_args()
    columns = [measure(root.resolve(), args.step) for root in args.checkouts]
    rows = list(dict.fromkeys(name for column in columns for name in column))
    print("|", *(f"{root} |" for root in ["", *args.checkouts]))
    print("|---|", *("---: |" for _ in columns))
    for name in rows:
        print(f"| {name} |", *(f"{column.get(name, '-')} |" for column in columns))


if __name__ == "__main__":
    main()
