"""The commit that a run records, in a git repository made for the test."""

import shutil
import subprocess

import pytest

from pyserini_ance.runs.provenance import commit_of

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


@pytest.fixture
def package(tmp_path):
    """A package's folder in a repository without commits."""
    made = tmp_path / "repository" / "package"
    made.mkdir(parents=True)
    (made / "__init__.py").write_text("")
    (made.parent / ".gitignore").write_text("ignored/\n")
    git(made, "init", "--quiet")
    return made


def git(folder, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


@needs_git
def test_a_checkout_has_a_commit_and_its_own_changes(package):
    git(package, "add", ".")
    assert commit_of(package) is None
    git(package, "commit", "--quiet", "-m", "first")
    head = git(package, "rev-parse", "HEAD")
    assert len(head) == 40 and commit_of(package) == {"hash": head, "changed": False}
    (package.parent / "README.md").write_text("not of the package")
    assert commit_of(package) == {"hash": head, "changed": False}
    (package / "new.py").write_text("")
    assert commit_of(package) == {"hash": head, "changed": True}
    git(package, "add", ".")
    git(package, "commit", "--quiet", "-m", "second")
    assert (
        commit_of(package)
        == {"hash": git(package, "rev-parse", "HEAD"), "changed": False}
        != {"hash": head, "changed": False}
    )
    (package / "__init__.py").write_text("changed")
    assert commit_of(package)["changed"]


@needs_git
def test_a_package_installed_inside_a_repository_has_no_commit(package):
    git(package, "add", ".")
    git(package, "commit", "--quiet", "-m", "first")
    installed = package.parent / "ignored" / "package"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert commit_of(installed) is None


def test_without_a_repository_or_git_there_is_no_commit(tmp_path, monkeypatch):
    assert commit_of(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) is None
