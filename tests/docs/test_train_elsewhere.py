"""docs/examples: training on Hugging Face Jobs and Modal up to the first network call, and the work there."""

import os
import re
import runpy
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, create_autospec

import huggingface_hub
import pytest
from helpers.pages import ROOT

EXAMPLES = ROOT / "docs" / "examples"
JOBS, MODAL = EXAMPLES / "train_on_hf_jobs.py", EXAMPLES / "train_on_modal.py"
WHEEL = "pyserini_ance-0.1.0-py3-none-any.whl"
# Instead of training: writes into the run how it was called; perhaps waits for SIGTERM.
TRAIN = """#!/bin/sh
mkdir -p run && touch run/environment.json && echo "$@" >> run/calls
[ -n "$WAITS" ] && exec sleep 60
exit 3
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / WHEEL).touch()
    return tmp_path / "mine"


def launched(file: Path, *arguments: object, monkeypatch, **modules: object) -> None:
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "argv", [str(file), *map(str, arguments)])
    runpy.run_path(str(file), run_name="__main__")


def test_a_job_of_hugging_face(folder, monkeypatch, capsys):
    api = create_autospec(huggingface_hub.HfApi, instance=True)
    api.run_uv_job.return_value.url = "https://huggingface.co/jobs/me/1"
    hub = SimpleNamespace(HfApi=lambda: api, Volume=huggingface_hub.Volume)
    launched(JOBS, folder, "me/runs", "--hours", 2, monkeypatch=monkeypatch, huggingface_hub=hub)
    assert capsys.readouterr().out == "https://huggingface.co/jobs/me/1\n"
    api.create_bucket.assert_called_once_with("me/runs", private=True, exist_ok=True)
    api.sync_bucket.assert_called_once_with(str(folder), "hf://buckets/me/runs/mine")
    script, named = api.run_uv_job.call_args
    assert script == (str(JOBS),) and named["script_args"] == ["--work", "/store/mine", "2"]
    assert named["dependencies"] == [f"pyserini_ance[gpu] @ file:///store/mine/{WHEEL}"]
    assert (named["flavor"], named["timeout"], named["volumes"][0].mount_path) == ("l4x1", "2h", "/store")


def test_a_job_of_modal(folder, monkeypatch, capsys):
    """Modal is no dependency of the tests: this is its module's place, which takes any call."""
    modal = MagicMock()
    modal.Sandbox.create.return_value.get_dashboard_url.return_value = "https://modal.com/id/sb-1"
    launched(MODAL, folder, "runs", "--gpu", "A10", monkeypatch=monkeypatch, modal=modal)
    assert capsys.readouterr().out == "https://modal.com/id/sb-1\n"
    batch = modal.Volume.from_name.return_value.batch_upload.return_value.__enter__.return_value
    batch.put_directory.assert_called_once_with(folder, "/mine")
    command, named = modal.Sandbox.create.call_args
    assert command == ("python", "/work.py", "--work", "/store/mine", "24")
    assert (named["gpu"], named["timeout"], [*named["volumes"]]) == ("A10", 86400, ["/store"])


@pytest.mark.parametrize("file", [JOBS, MODAL], ids=lambda file: file.stem)
def test_a_run_is_copied_to_the_store_and_resumed_from_there(folder, tmp_path, file):
    (tmp_path / "pyserini-ance").write_text(TRAIN)
    (tmp_path / "pyserini-ance").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def work(hours: str, **variables: str) -> int:
        command = [sys.executable, str(file), "--work", str(folder), hours]
        return subprocess.run(command, env={**environment, **variables}).returncode

    assert work("1") == 3
    (folder / "run-0002").mkdir()  # of a job that was killed while it copied
    assert work(str(902 / 3600), WAITS="1") == 256 - signal.SIGTERM
    assert sorted(path.name for path in folder.iterdir()) == [WHEEL, "run-0002", "run-0002.done"]
    train = "train recipe.yaml --output run"
    assert (folder / "run-0002/calls").read_text() == f"{train}\n{train} --resume\n"


@pytest.mark.parametrize("file", [JOBS, MODAL], ids=lambda file: file.stem)
def test_the_head_of_a_file_names_what_it_needs_and_the_wheel_is_asked_for(tmp_path, monkeypatch, file):
    head = re.search(r"^# /// script\n(.*?)^# ///$", file.read_text(), re.DOTALL | re.MULTILINE)[1]
    needs = tomllib.loads(re.sub(r"^# ?", "", head, flags=re.MULTILINE))
    assert needs["requires-python"] == ">=3.12" and len(needs["dependencies"]) == 1
    stubs = {"huggingface_hub": MagicMock(), "modal": MagicMock()}
    with pytest.raises(SystemExit, match=f"pip wheel --no-deps --wheel-dir {tmp_path} ."):
        launched(file, tmp_path, "runs", monkeypatch=monkeypatch, **stubs)
