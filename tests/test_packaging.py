import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
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
    """A wheel built offline from a copy's sdist: lacks what MANIFEST.in forgets, has no stale builds."""
    base = tmp_path_factory.mktemp("packaging")
    _build("build_sdist", base, shutil.copytree(ROOT, base / "tree", ignore=_only_sources))
    shutil.unpack_archive(next(base.glob("*.tar.gz")), base / "sdist", filter="data")
    [unpacked] = (base / "sdist").iterdir()
    _build("build_wheel", base, unpacked)
    return next(base.glob("*.whl"))


def _only_sources(folder: str, names: list[str]) -> set[str]:
    needed = {"pyserini_ance", "recipes", "setup.py", "MANIFEST.in", "README.md", "LICENSE"}
    return set(names) - needed if Path(folder) == ROOT else {"__pycache__"}


def _build(hook: str, into: Path, tree: Path) -> None:
    command = [sys.executable, "-c", BUILD.format(hook), str(into)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only git knows which files belong to the sdist")
def test_sdist_holds_every_file_of_the_repository(tmp_path):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
    for name in files:
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "tree" / name)
    _build("build_sdist", tmp_path, tmp_path / "tree")
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert files - held == {".gitignore"}


def test_wheel_holds_the_code_and_the_recipes(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    recipes = [path for path in (ROOT / "recipes").rglob("*") if path.suffix in (".yaml", ".md")]
    files = [path for each in ("*.py", "*.j2", "*.txt") for path in (ROOT / "pyserini_ance").rglob(each)]
    modules = {path.relative_to(ROOT).as_posix() for path in files}
    assert {f"pyserini_ance/{path.relative_to(ROOT).as_posix()}" for path in recipes} | modules <= names
    about = f"pyserini_ance-{__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"pyserini_ance", about}


def test_recipe_is_found_in_an_installed_wheel(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    program = "from pyserini_ance.recipe.load import find_recipe; print(find_recipe('demo/ance'))"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    found = str(tmp_path / "pyserini_ance" / "recipes" / "demo" / "ance.yaml")
    assert done.stdout.strip() == found, done.stderr


@pytest.mark.long
def test_installed_wheel_runs_the_demo(wheel, tmp_path):
    """An environment that holds the wheel alone; the other libraries are added to its path."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    [packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", tmp_path / "venv/bin/python", "install", "--no-deps"]
    subprocess.run([*pip, "--no-index", wheel], check=True, capture_output=True)

    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def train(*arguments: str) -> str:
        command = [tmp_path / "venv/bin/pyserini-ance", "train", "demo-small/rand-batch", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and "_pytree" not in done.stderr, done.stderr
        return done.stdout

    small = ["cache=cache", "threads=1", "data.packages=[networkx]", "data.max_documents=400", "bm25=null"]
    printed = train("--print", *small)
    assert printed.startswith("name: demo-small/rand-batch\n")
    assert "max_documents: 400\n" in printed
    made = train("--output", "run", "stages.rand-batch.steps=2", "stages.rand-batch.evaluate=null", *small)
    assert "| demo-small/rand-batch |" in made or "| rand-batch |" in made, made
    assert {"model", "index", "report.html"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_containerfile_installs_what_it_copies(wheel, tmp_path):
    """Its instructions against setup.py. No image is built: the base image comes from a registry."""
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    steps = [tuple(line.split(" ", 1)) for line in lines if not line.startswith("#")]
    for sources, target in (words.rsplit(" ", 1) for name, words in steps if name == "COPY"):
        for source in map(ROOT.joinpath, sources.split()):
            if source.is_dir():
                shutil.copytree(source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, tmp_path / target)
    _build("build_wheel", tmp_path / "dist", tmp_path)
    [built] = (tmp_path / "dist").glob("*.whl")
    assert zipfile.ZipFile(built).namelist() == zipfile.ZipFile(wheel).namelist()

    (tmp_path / "pip").write_text('#!/bin/sh\necho "$@" >> pip.log\n')
    (tmp_path / "pip").chmod(0o755)
    arguments = dict(words.split("=", 1) for name, words in steps if name == "ARG")
    for name, words in steps:
        if name == "RUN":
            path = f"{tmp_path}:{os.environ['PATH']}"
            subprocess.run(["sh", "-c", words], cwd=tmp_path, env=arguments | {"PATH": path}, check=True)
    [call] = (tmp_path / "pip.log").read_text().splitlines()
    assert call == "install --no-cache-dir -c constraints.txt .[cpu,demo]"
    assert {"cpu", "gpu", "demo"} <= set(_metadata(wheel).get_all("Provides-Extra"))
    assert (tmp_path / "constraints.txt").is_file()

    said = dict(steps)
    python = (ROOT / ".python-version").read_text().strip()
    assert said["FROM"] == f"docker.io/library/python:{python}-slim"
    scripts = zipfile.ZipFile(wheel).read(f"pyserini_ance-{__version__}.dist-info/entry_points.txt").decode()
    [entry] = json.loads(said["ENTRYPOINT"])
    assert f"{entry} = pyserini_ance.__main__:run" in scripts


def test_metadata(wheel):
    about = _metadata(wheel)
    named = (about["Version"], about["Requires-Python"], about["License-Expression"])
    assert named == (__version__, ">=3.12", "Apache-2.0")
    extras = "cpu gpu demo pydocs adapt ir-datasets peft ray tensorboard torchao lint docs test"
    assert " ".join(about.get_all("Provides-Extra")) == extras
    [newest, *_] = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == __version__


def test_one_tested_version_for_every_range(wheel):
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    for requirement in map(Requirement, _metadata(wheel).get_all("Requires-Dist")):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), str(requirement)


def _metadata(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        return message_from_string(archive.read(f"pyserini_ance-{__version__}.dist-info/METADATA").decode())
