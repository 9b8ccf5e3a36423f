"""Lab notes name the commit that they were measured at and the code that they are about; a test warns
where that code has changed since."""

import re
import subprocess
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTES = sorted(path for path in (ROOT / "docs/lab-notes").glob("*.md") if path.name != "index.md")
MEASURED = re.compile(r"^<!-- measured at ([0-9a-f]{7,40}):\s(.+?) -->$", re.MULTILINE | re.DOTALL)


class OlderThanItsCode(UserWarning):
    """Figures were measured before the last change of the code that they are about."""


def git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commits_since(commit: str, paths: list[str]) -> int:
    return int(git("rev-list", "--count", f"{commit}..HEAD", "--", *paths))


@pytest.fixture(scope="module")
def history():
    try:
        if git("rev-parse", "--is-shallow-repository") == "true":
            pytest.skip("the clone is shallow: git clone without --depth has the commits of the notes")
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("no git, or not a clone: the package was unpacked from an archive")


def test_the_notes_are_found():
    assert len(NOTES) >= 7


@pytest.mark.parametrize("note", NOTES, ids=lambda path: path.stem)
def test_a_note_names_its_commit_and_its_code(note):
    text = note.read_text(encoding="utf-8")
    [(commit, paths)] = MEASURED.findall(text)
    assert text.count(commit) >= 2, f"{note}: readers see no comment; the text names the commit {commit} too"
    missing = [path for path in paths.split() if not (ROOT / path).exists()]
    assert not missing, f"{note}: the note is about {missing}, which is not there; name its code of today"


@pytest.mark.parametrize("note", NOTES, ids=lambda path: path.stem)
def test_a_note_that_is_older_than_its_code_is_warned_of(note, history):
    [(commit, paths)] = MEASURED.findall(note.read_text(encoding="utf-8"))
    assert git("merge-base", commit, "HEAD").startswith(commit), f"{commit} is no ancestor of this commit"
    if count := commits_since(commit, paths.split()):
        message = (
            f"{note.name}: measured at {commit}; {count} commits have changed its code since: measure again"
        )
        warnings.warn(message, OlderThanItsCode, stacklevel=1)


def test_commits_are_counted_by_path(history):
    commits = git("rev-list", "HEAD", "--", "setup.py").split()
    assert commits_since(commits[-1], ["setup.py"]) == len(commits) - 1
    assert commits_since("HEAD", ["setup.py"]) == 0
