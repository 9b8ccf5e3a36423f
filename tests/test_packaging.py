import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pyserini_ance import __version__

ROOT = Path(__file__).parents[1]
BUILD = "from setuptools import build_meta; import sys; build_meta.{}(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built offline from the sdist of a copy: it lacks the files that MANIFEST.in forgets, and has no
    stale builds.
    """
    base = tmp_path_factory.mktemp("packaging")
    tree = shutil.copytree(ROOT, base / "tree", ignore=_only_sources)
    _build("build_sdist", base, tree)
    shutil.unpack_archive(next(base.glob("*.tar.gz")), base / "sdist", filter="data")
    [unpacked] = (base / "sdist").iterdir()
    _build("build_wheel", base, unpacked)
    return next(base.glob("*.whl"))


def _only_sources(folder: str, names: list[str]) -> set[str]:
    needed = {"pyserini_ance", "recipes", "setup.py", "MANIFEST.in", "README.md", "LICENSE"}
    return set(names) - needed if Path(folder) == ROOT else {"__pycache__"}


def _build(hook: str, into: Path, tree: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", BUILD.format(hook), str(into)], cwd=tree, check=True, capture_output=True
    )


def test_wheel_holds_the_code_and_the_recipes(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    recipes = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "recipes").rglob("*")
        if path.suffix in (".yaml", ".md")
    }
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "pyserini_ance").rglob("*.py")}
    assert {f"pyserini_ance/{name}" for name in recipes} | modules <= names
    assert {name.split("/")[0] for name in names} == {
        "pyserini_ance",
        f"pyserini_ance-{__version__}.dist-info",
    }


def test_recipe_is_found_in_an_installed_wheel(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    program = "from pyserini_ance.recipe.find import find_recipe; print(find_recipe('demo/ance'))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str(tmp_path / "pyserini_ance" / "recipes" / "demo" / "ance.yaml"), (
        done.stderr
    )


def test_metadata(wheel):
    about = _metadata(wheel)
    assert (about["Version"], about["Requires-Python"], about["License-Expression"]) == (
        __version__,
        ">=3.12",
        "Apache-2.0",
    )
    assert about.get_all("Provides-Extra") == [
        "cpu",
        "gpu",
        "demo",
        "pydocs",
        "rerank",
        "ir-datasets",
        "report",
        "tensorboard",
        "lint",
        "docs",
        "test",
    ]


def test_one_tested_version_for_every_range(wheel):
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    for requirement in map(Requirement, _metadata(wheel).get_all("Requires-Dist")):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), str(requirement)


def _metadata(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        return message_from_string(archive.read(f"pyserini_ance-{__version__}.dist-info/METADATA").decode())
