import json
import os
import subprocess
import sys

import pytest

from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage import owner

NO_PROCESS = 1 << 30  # above the highest process number that Linux gives


@pytest.fixture
def run(tmp_path) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.create("name: a\n")
    return made


def change_state(run: RunDir, **values) -> None:
    run.state.write_text(json.dumps({**run.read_state(), **values}))


def test_a_new_run_says_what_it_is(run):
    assert run.recipe.read_text() == "name: a\n"
    state = run.read_state()
    assert (state["status"], state["where"], state["pid"]) == ("running", "preparing", os.getpid())
    assert run.describe() == "a run that is running at preparing"


def test_an_empty_folder_is_taken(tmp_path):
    RunDir(tmp_path).create("name: a\n")
    assert RunDir(tmp_path).recipe.exists()


def test_another_run_is_refused_with_what_it_is(run):
    run.mark("stopped", "stage ance, step 100")
    with pytest.raises(FileExistsError, match="holds a run that stopped at stage ance, step 100. Use --resume .* --overwrite .* --output"):
        RunDir(run.folder).create("name: b\n")
    assert run.recipe.read_text() == "name: a\n"


def test_overwrite_replaces_a_run_whole(run):
    (run.folder / "left").write_text("over")
    RunDir(run.folder).create("name: b\n", overwrite=True)
    assert run.recipe.read_text() == "name: b\n"
    assert sorted(path.name for path in run.folder.iterdir()) == ["recipe.yaml", "state.json"]


def test_overwrite_clears_nothing_but_runs(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(FileExistsError, match="holds other files"):
        RunDir(tmp_path).create("name: a\n")
    with pytest.raises(FileExistsError, match="is not a run directory .*refuses to clear"):
        RunDir(tmp_path).create("name: a\n", overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_living_owner_is_refused(run):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        change_state(run, pid=other.pid, started=owner._start_ticks(other.pid))
        for attempt in (lambda: run.create("name: a\n", overwrite=True), run.reopen):
            with pytest.raises(RuntimeError, match=f"in use by process {other.pid} "):
                attempt()
        change_state(run, status="stopped")
        run.reopen()
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("gone", [{"pid": NO_PROCESS}, {"pid": 1}], ids=["no such process", "a number that was given again"])
def test_a_run_whose_process_is_gone_has_died(run, gone):
    run.mark("running", "stage ance, step 200")
    change_state(run, **gone)
    assert run.describe() == "a run that died at stage ance, step 200"
    run.reopen()


def test_a_run_of_another_host_may_be_resumed_but_not_wiped_out(run):
    change_state(run, host="elsewhere")
    with pytest.raises(RuntimeError, match="in use by process .* on elsewhere"):
        run.create("name: a\n", overwrite=True)
    run.reopen()


def test_resuming_takes_the_run_up_where_it_stood(run):
    run.mark("failed", "stage ance, step 100", reason="disk full")
    change_state(run, pid=NO_PROCESS)
    run.error.write_text("Traceback")
    run.reopen()
    state = run.read_state()
    assert (state["status"], state["where"], state["pid"]) == ("running", "stage ance, step 100", os.getpid())
    assert not run.error.exists()


def test_nothing_to_resume(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run to resume"):
        RunDir(tmp_path / "nowhere").reopen()


def test_a_run_of_another_layout_is_refused(run):
    change_state(run, layout=99)
    with pytest.raises(RuntimeError, match="layout 99; this version reads 2"):
        run.reopen()
