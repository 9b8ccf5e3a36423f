"""The commit that a run is made by, in a repository of git's own."""

import shutil
import subprocess

import pytest

from pyserini_ance.experiment.environment import commit_of

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


@pytest.fixture
def package(tmp_path):
    """The folder of a package in a repository without commits."""
    made = tmp_path / "repository" / "package"
    made.mkdir(parents=True)
    (made / "__init__.py").write_text("")
    (made.parent / ".gitignore").write_text("ignored/\n")
    git(made, "init", "--quiet")
    return made


def git(folder, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout.strip()


@needs_git
def test_a_checkout_has_a_commit_and_changes_of_its_own_files(package):
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
    assert commit_of(package) == {"hash": git(package, "rev-parse", "HEAD"), "changed": False} != {"hash": head, "changed": False}
    (package / "__init__.py").write_text("changed")
    assert commit_of(package)["changed"]


@needs_git
def test_a_package_that_is_installed_within_a_repository_has_none(package):
    git(package, "add", ".")
    git(package, "commit", "--quiet", "-m", "first")
    installed = package.parent / "ignored" / "package"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert commit_of(installed) is None


def test_without_a_repository_or_git_there_is_none(tmp_path, monkeypatch):
    assert commit_of(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) is None
