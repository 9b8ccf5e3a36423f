"""The Python and bash blocks of docs/guides and README.md run, page by page, in a temporary directory.

A block is left out if a comment `<!-- not run: reason -->` precedes it. The other blocks of a page run in
order: Python blocks share their names, and a block with `title="FILE"` is written to that file instead.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers.pages import ROOT, environment

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
BLOCK = re.compile(
    r"^(?P<comment><!-- not run: .+ -->\n)?```(?P<language>\w+)(?: "
    r'title="(?P<title>\S+)")?\n(?P<code>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
# Runs the steps of a page, a JSON list of (language, code, place), in one process.
DRIVER = """
import json, subprocess, sys
names = {"__name__": "__main__"}
for language, code, place in json.load(open(sys.argv[1])):
    print(f"== {place}", flush=True)
    if language == "python":
        exec(compile(code, place, "exec"), names)
    else:
        subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True)
"""


class Block(NamedTuple):
    """One fenced block of a page; `line` is that of its fence."""

    line: int
    language: str
    title: str | None
    code: str


def blocks(page: Path) -> list[Block]:
    """The blocks that run: Python and bash without a comment, and files."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(text.count("\n", 0, match.start("code")), match["language"], match["title"], match["code"])
        for match in BLOCK.finditer(text)
        if not match["comment"] and (match["language"] in ("python", "bash") or match["title"])
    ]


RUN = [page for page in PAGES if any(block.language in ("python", "bash") for block in blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_compiles_and_the_text_names_the_file_of_a_block(page):
    """A rendered page does not show titles."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        place = f"{page.name}:{text.count(chr(10), 0, match.start('code'))}"
        if match["language"] == "python":
            compile(match["code"], place, "exec")
        before = text[: match.start()].rpartition("```")[2]
        assert not match["title"] or f"`{match['title']}`" in before, f"{place}: name {match['title']}"


def test_every_page_with_unmarked_blocks_is_run():
    assert {"README", "commands", "extending", "own-data", "python-api"} <= {page.stem for page in RUN}


@pytest.mark.long
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_blocks_run(page, forked_python, tmp_path):
    steps = []
    for block in blocks(page):
        if block.title:
            (tmp_path / block.title).write_text(block.code, encoding="utf-8")
        else:
            steps.append((block.language, block.code, f"{page.name}:{block.line}"))
    (tmp_path / "driver.py").write_text(DRIVER)
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    command, variables = [*forked_python, "driver.py", "steps.json"], environment(tmp_path, forked_python)
    result = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert result.returncode == 0, f"{result.stdout[-2000:]}\n{result.stderr[-4000:]}"
