"""The guides: their text, their code, and the commands that run it."""

import os
import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^(?P<comment><!-- not run: [^\n]+ -->\n)?```(?P<language>\w+)(?: "
    r'title="(?P<title>\S+)")?\n(?P<code>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


def guide(name: str) -> str:
    return (ROOT / "docs" / "guides" / f"{name}.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The code of all blocks of a language, with a title or without."""
    return [block["code"] for block in BLOCK.finditer(text) if block["language"] == language]


def files(text: str) -> dict[str, str]:
    """The code of blocks with a title, by title."""
    return {block["title"]: block["code"] for block in BLOCK.finditer(text) if block["title"]}


def first_cells(text: str) -> set[str]:
    return set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def environment(folder: Path, python: list[str], before: str = "") -> dict[str, str]:
    """`python` and `pyserini-ance` are this interpreter's; `before` is what `pyserini-ance` runs first."""
    run = "import runpy; runpy.run_module('pyserini_ance', run_name='__main__', alter_sys=True)"
    programs = folder / "bin"
    programs.mkdir()
    for name, words in {"python": python, "pyserini-ance": [*python, "-c", f"{before}\n{run}"]}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (programs / name).chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    modules = os.pathsep.join(filter(None, [str(ROOT), str(folder), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PATH": path, "PYTHONPATH": modules}
