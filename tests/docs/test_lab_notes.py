import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTES = sorted(path for path in (ROOT / "docs/lab-notes").glob("*.md") if path.name != "index.md")
MEASURED = re.compile(r"^<!-- measured at ([0-9a-f]{7,40}):\s(.+?) -->$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("note", NOTES, ids=lambda path: path.stem)
def test_a_note_names_its_commit_and_its_code(note):
    text = note.read_text(encoding="utf-8")
    [(commit, paths)] = MEASURED.findall(text)
    assert text.count(commit) >= 2, f"{note}: readers see no comment; the text names the commit {commit} too"
    missing = [path for path in paths.split() if not (ROOT / path).exists()]
    assert not missing, f"{note}: the note is about {missing}, which is not there; name its code of today"
