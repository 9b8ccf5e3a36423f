import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec

import pytest

from pyserini_ance.recipe.load import dump, load
from pyserini_ance.runs.provenance import command_line, commit_of, config_hash
from pyserini_ance.runs.rundir import RunDir

CHANCE_OR_MACHINE = ["seed=7", "threads=3", "refresher=external", "save_total_limit=3"]
CHANCE_OR_MACHINE += ["device=cpu", "cache=/elsewhere", "encoding={search: torch}"]
CHANCE_OR_MACHINE += ["expect={dev: {RR@10: 0.5}}"]
SETTINGS = ["stages.ance.steps=121", "stages.ance.refresh.mode=async", "precision=fp32", "name=other"]
SETTINGS += ["encoding.precision=fp32", "encoding.search=64", "final_evaluation.measures=[R@200]"]
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


@pytest.mark.parametrize("override", [*CHANCE_OR_MACHINE, *SETTINGS])
def test_runs_that_differ_by_chance_or_machine_alone_share_a_hash(override):
    same = config_hash(load("demo/ance", override)) == config_hash(load("demo/ance"))
    assert same == (override in CHANCE_OR_MACHINE)


def test_runs_that_start_from_seeds_of_one_recipe_share_a_hash(tmp_path):
    def started(warm_up: str, *overrides: str) -> str:
        folder = tmp_path / "-".join([warm_up, *overrides]).replace("/", "-")
        RunDir(folder).create(dump(load(warm_up, *overrides)))
        return config_hash(load("demo/bm25-rand", f"stages.rand.init_from={{folder: {folder}}}"))

    assert started("demo/warmup", "seed=1") == started("demo/warmup", "seed=2")
    assert len({started("demo/warmup"), started("demo/bm25"), config_hash(load("demo/bm25-rand"))}) == 3


def test_commands_are_told_as_they_were_typed(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["work/train.py", "a b"])
    names = {None: "train.py", "one.train": "python -m one.train", "one.__main__": "python -m one"}
    for name, told in names.items():
        monkeypatch.setattr(sys.modules["__main__"], "__spec__", name and ModuleSpec(name, None))
        assert command_line() == f"{told} 'a b'"


def git(folder, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@needs_git
def test_a_checkout_has_a_commit_and_its_own_changes(tmp_path):
    package = tmp_path / "repository" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package.parent / ".gitignore").write_text("ignored/\n")
    git(package, "init", "--quiet")
    git(package, "add", ".")
    assert commit_of(package) is None
    git(package, "commit", "--quiet", "-m", "first")
    head = git(package, "rev-parse", "HEAD")
    assert len(head) == 40 and commit_of(package) == {"hash": head, "changed": False}
    (package.parent / "README.md").write_text("not of the package")
    assert commit_of(package) == {"hash": head, "changed": False}
    (package / "new.py").write_text("")
    assert commit_of(package) == {"hash": head, "changed": True}
    (package / "new.py").unlink()
    (package / "__init__.py").write_text("changed")
    assert commit_of(package) == {"hash": head, "changed": True}
    installed = package.parent / "ignored" / "package"  # in an environment inside the repository
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert commit_of(installed) is None
