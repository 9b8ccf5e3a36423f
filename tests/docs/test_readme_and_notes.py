import ast
import re
import runpy
from pathlib import Path

import pytest
from helpers.pages import ROOT

CODE = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Code\n")[2].partition("```")[0]
NAMED = dict(re.findall(r"`([\w.]+)`\s+\(`(\w+/\w+\.py)`", CODE))


def definitions(path: Path) -> set[str]:
    """The functions of a module, and its methods as `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return names


def test_the_path_names_the_functions_of_a_step_and_of_a_refresh_in_order():
    in_order = ["Experiment.train_stage", "StageTrainer._train_step", "plan_batch", "BatchEncoder.encode"]
    in_order += ["term_losses", "StageTrainer._before_step", "RefreshQueue.advance", "SyncExecutor.submit"]
    in_order += ["Refresher.make", "Ann.mine", "MinedSource.table_of", "NegativeTables.adopt"]
    assert list(NAMED) == in_order
    for name, path in NAMED.items():
        assert name in definitions(ROOT / "pyserini_ance" / path), f"{path} does not define {name}"


def test_the_readme_has_at_most_150_lines():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


NOTES = sorted(path for path in (ROOT / "docs/lab-notes").glob("*.md") if path.name != "index.md")
MEASURED = re.compile(r"^<!-- measured at ([0-9a-f]{7,40}):\s(.+?) -->$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("note", NOTES, ids=lambda path: path.stem)
def test_a_note_names_its_commit_and_its_code(note):
    text = note.read_text(encoding="utf-8")
    [(commit, paths)] = MEASURED.findall(text)
    assert text.count(commit) >= 2, f"{note}: readers see no comment; the text names the commit {commit} too"
    missing = [path for path in paths.split() if not (ROOT / path).exists()]
    assert not missing, f"{note}: the note is about {missing}, which is not there; name its code of today"


def test_every_key_has_a_description_and_every_link_a_heading():
    page = runpy.run_path(str(ROOT / "docs" / "hooks" / "recipe_reference.py"))["reference"]()
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| `", page, re.MULTILINE)) > 150
    assert [key for key, *_, meaning in rows if not meaning.strip()] == []
    texts = re.findall(r"^#+ (.+)$", page, re.M)
    headings = {re.sub(r"[^\w -]", "", text).replace(" ", "-").lower() for text in texts}
    assert set(re.findall(r"\]\(#([\w-]+)\)", page)) <= headings
