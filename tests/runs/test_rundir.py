"""RunDir: creating, overwriting and resuming runs, whatever processes died in or still use the directory."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
from helpers.waiting import until

from pyserini_ance.evaluation.tables import read_results
from pyserini_ance.runs.rundir import RunDir, load_recipe
from pyserini_ance.storage import liveness
from pyserini_ance.storage.files import write_json
from pyserini_ance.storage.lock_file import LockHeld

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


def test_an_empty_folder_is_used(tmp_path):
    RunDir(tmp_path).create("name: a\n")
    assert RunDir(tmp_path).recipe.exists()


def test_a_process_that_died_before_the_start_leaves_an_empty_folder(tmp_path):
    """It was killed between its claim and the first state: there is no run to resume or overwrite."""
    (tmp_path / ".state.json.claim-1").write_text(json.dumps({**liveness.this_process(), "pid": NO_PROCESS}))
    (tmp_path / f".state.json.{NO_PROCESS}@{liveness.host_name()}.tmp").touch()
    run = RunDir(tmp_path)
    run.create("name: x\n")
    assert run.read_state()["term"] == 2 and run.recipe.read_text() == "name: x\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".state.json.claim-2",
        "recipe.yaml",
        "state.json",
    ]


def test_an_existing_run_is_described_in_the_error(run):
    run.mark("stopped", "stage ance, step 100")
    with pytest.raises(
        FileExistsError,
        match=r"holds a run that stopped at stage ance, step 100\. Continue it with resume \(--resume\), "
        r".* \(--overwrite\), .* \(--output\)",
    ):
        RunDir(run.folder).create("name: b\n")
    assert run.recipe.read_text() == "name: a\n"


def test_overwrite_replaces_a_whole_run(run):
    (run.folder / "left").write_text("over")
    RunDir(run.folder).create("name: b\n", overwrite=True)
    assert run.recipe.read_text() == "name: b\n"
    assert sorted(path.name for path in run.folder.iterdir() if not path.name.startswith(".")) == [
        "recipe.yaml",
        "state.json",
    ]


def test_overwrite_clears_only_runs(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(FileExistsError, match=r"holds other files"):
        RunDir(tmp_path).create("name: a\n")
    with pytest.raises(FileExistsError, match=r"is not a run directory .*--overwrite does not clear it"):
        RunDir(tmp_path).create("name: a\n", overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_a_folder_of_other_files_names_cures_that_work(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(FileExistsError, match=r"holds other files. Pass another output \(--output\)\.$"):
        RunDir(tmp_path).create("")


def test_a_run_that_this_process_trains_is_not_opened(run, tmp_path):
    with run.held():
        other = RunDir(run.folder)
        for attempt in (
            lambda: other.create("name: a\n", overwrite=True),
            other.reopen,
            lambda: other.clear_claims(tmp_path / "cache"),
        ):
            with pytest.raises(RuntimeError, match=f"in use by this process, process {os.getpid()} "):
                attempt()
        run.mark("running", "step 101")
    other.reopen()


def test_a_run_with_a_living_holder_is_not_opened(run):
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        change_state(run, pid=other.pid, started=liveness._start_ticks(other.pid))
        for attempt in (lambda: run.create("name: a\n", overwrite=True), run.reopen):
            with pytest.raises(RuntimeError, match=f"in use by process {other.pid} "):
                attempt()
        change_state(run, status="stopped")
        run.reopen()
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize(
    "dead", [{"pid": NO_PROCESS}, {"pid": 1}], ids=["no such process", "a reused number"]
)
def test_a_run_whose_process_is_dead_has_died(run, dead):
    run.mark("running", "stage ance, step 200")
    change_state(run, **dead)
    assert run.describe() == "a run that died at stage ance, step 200"
    run.reopen()


def test_a_silent_run_of_another_host_is_resumed_or_overwritten(run, clock, caplog):
    change_state(run, host="elsewhere", started=5, where="stage ance, step 100")
    assert run.describe() == "a run that is running, or died, on host elsewhere at stage ance, step 100"
    with caplog.at_level("INFO"):
        run.reopen()
    assert (
        f"waiting up to 60 s to see whether process {os.getpid()} on host elsewhere is alive: {run.state}"
        in caplog.text
    )
    assert run.read_state()["where"] == "stage ance, step 100" and run.read_state()["pid"] == os.getpid()
    change_state(run, host="elsewhere")
    RunDir(run.folder).create("name: b\n", overwrite=True)
    assert run.recipe.read_text() == "name: b\n"


OTHER_HOST = """
import socket, sys, time
from pathlib import Path
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage import role_lock

role_lock.BEAT_SECONDS = 0.02
socket.gethostname = lambda: "elsewhere"
with getattr(RunDir(Path(sys.argv[1])), sys.argv[2]).held("encode"):
    print("holding", flush=True)
    time.sleep(60)
"""


@contextmanager
def other_host(run: RunDir, role: str):
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_HOST, run.folder, role], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "holding\n"
        yield process
        process.kill()


def test_a_beating_run_of_another_host_is_not_opened(run):
    run.mark("stopped", "stage ance, step 100")
    with other_host(run, "trainer") as process:
        for attempt in (lambda: RunDir(run.folder).create("name: b\n", overwrite=True), run.reopen):
            with pytest.raises(
                LockHeld,
                match=f"in use by process {process.pid} on host elsewhere since .*, at work on encode",
            ):
                attempt()
    assert run.recipe.read_text() == "name: a\n"


def test_a_run_with_a_living_refresher_is_not_cleared(run):
    run.mark("stopped", "stage ance, step 100")
    with other_host(run, "refresher") as process:
        with pytest.raises(
            LockHeld, match=rf"in use by process {process.pid} on host elsewhere .*refresher\.json"
        ):
            RunDir(run.folder).create("name: b\n", overwrite=True)
        assert run.describe() == "a run that stopped at stage ance, step 100"
        run.reopen()


def test_a_held_run_has_a_heartbeat_and_records_how_it_ended(run, monkeypatch):
    monkeypatch.setattr("pyserini_ance.storage.role_lock.BEAT_SECONDS", 0.01)
    with run.held():
        first = run.read_state()
        assert (first["status"], first["where"], first["term"]) == ("running", "preparing", 1)
        until(lambda: run.read_state()["beat"] > first["beat"])
        run.mark("running", "stage ance, step 1")
    assert run.describe() == "a finished run"
    assert sorted(path.name for path in run.folder.iterdir()) == ["recipe.yaml", "state.json"]


def test_reopening_removes_unfinished_files_of_dead_processes(run, clock):
    """A dead trainer of this host, and one of another host whose silence shows that it is dead."""
    change_state(run, host="elsewhere", pid=7, started=5)
    there = f"elsewhere+{liveness.process_table()}"
    expected = [
        run.folder / f".state.json.8@{there}.tmp",
        run.checkpoint("ance", 2),
        run.folder / "recipe.yaml",
    ]
    removed = [
        run.folder / f".metrics.jsonl.{NO_PROCESS}@{liveness.host_name()}.tmp",
        run.folder / f".state.json.7@{there}.tmp",
    ]
    removed += [run.checkpoints / f".ance-00000001.0.7@{there}.gone", run.checkpoint("ance", 1)]
    for path in (run.checkpoint("ance", 1), run.checkpoint("ance", 2), removed[2]):
        path.mkdir(parents=True)
    for path, pid in ((run.checkpoint("ance", 1), 7), (run.checkpoint("ance", 2), 8)):
        owner = {"pid": pid, "host": "elsewhere", "started": 5, "process_table": liveness.process_table()}
        (path / "claim.json").write_text(json.dumps(owner))
    for path in (expected[0], *removed[:2]):
        path.touch()
    run.reopen()
    assert [path for path in expected if not path.exists()] == []
    assert [path for path in removed if path.exists()] == []


def test_what_dead_processes_of_a_run_have_claimed_in_caches_is_cleared_before_it_is_resumed(
    run, clock, tmp_path
):
    """A trainer of another host that has fallen silent, and a refresher of this host that has died."""
    run.refresher.acquire("tables of ance-00000004")
    refresher = {**run.refresher.read(), "pid": NO_PROCESS}
    run.refresher.path.write_text(json.dumps(refresher))
    change_state(run, host="elsewhere", pid=7, started=5)
    cache = tmp_path / "cache"
    owners = {
        cache / "tokens" / "theirs": run.read_state(),
        cache / "collections" / "the refresher's": refresher,
        run.scratch / "index": run.read_state(),
        cache / "tokens" / "of another run": {**run.read_state(), "pid": 8},
    }
    for folder, owner in owners.items():
        folder.mkdir(parents=True)
        (folder / "claim.json").write_text(json.dumps(owner))
    run.clear_claims(cache)
    assert [folder.exists() for folder in owners] == [False, False, False, True]


def test_claims_of_a_run_that_is_being_trained_stay(run, tmp_path):
    run.mark("stopped", "stage ance, step 100")
    with other_host(run, "trainer"), pytest.raises(LockHeld, match="at work on encode"):
        run.clear_claims(tmp_path / "cache")


def test_one_of_two_processes_that_overwrite_a_run_gets_an_error(run):
    """The files that the other process has written are not cleared."""
    run.mark("stopped", "the end")
    source = "import sys; from pathlib import Path; from pyserini_ance.runs.rundir import RunDir\n"
    source += "run = RunDir(Path(sys.argv[1])); print(flush=True); sys.stdin.readline()\n"
    source += "run.create(f'name: {sys.argv[2]}', overwrite=True); print('created', flush=True)\n"
    source += "sys.stdin.readline(); print(run.recipe.read_text(), run.read_state()['pid'], flush=True)"

    def start(name: str) -> subprocess.Popen:
        command, pipe = [sys.executable, "-c", source, run.folder, name], subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    with start("b") as b, start("c") as c:
        for process in (b, c):
            process.stdout.readline()
        for process in (b, c):
            process.stdin.write("\n")
            process.stdin.flush()
        created = [process.stdout.readline() for process in (b, c)]
        assert sorted(created) == ["", "created\n"]
        winner, loser = (b, c) if created[0] else (c, b)
        assert f"in use by process {winner.pid} " in loser.communicate()[1]
        assert winner.communicate("\n")[0] == f"name: {'b' if winner is b else 'c'} {winner.pid}\n"


def test_resuming_keeps_where_the_run_stopped(run):
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


def test_a_run_of_another_layout_is_an_error(run):
    change_state(run, layout=99)
    with pytest.raises(
        RuntimeError, match=r"run was written by another version \(layout 99 in state.json\), .* \(layout 3\)"
    ):
        run.reopen()
    RunDir(run.folder).create("name: b\n", overwrite=True)
    assert run.read_state()["layout"] == 3


def test_a_run_of_an_earlier_layout_gives_one_error_however_it_is_opened(run):
    """Its recipe has old keys, each of which would be an error of its own."""
    run.recipe.write_text("about: a run of long ago\nkeep: {checkpoints: 2}\n")
    write_json(run.measures, {})
    change_state(run, layout=2)
    for attempt in (
        run.reopen,
        run.read_state,
        run.read_recipe,
        run.read_final_evaluation,
        lambda: load_recipe(run.recipe, "seed=1"),
        lambda: read_results(run.folder),
    ):
        with pytest.raises(RuntimeError) as caught:
            attempt()
        assert str(caught.value) == (
            f"{run.folder} was written by an earlier version (layout 2 in state.json), "
            "and this version (layout 3) does not read it; train again, or use that version"
        )


def test_a_damaged_state_is_an_error_with_its_name(run):
    run.state.write_text("")
    for attempt in (
        run.reopen,
        lambda: run.create("name: b\n"),
        lambda: run.create("name: b\n", overwrite=True),
        run.describe,
    ):
        with pytest.raises(
            RuntimeError,
            match=r"state\.json was damaged: found b'' .* expected one JSON object; restore or remove it",
        ):
            attempt()
    assert run.recipe.read_text() == "name: a\n"
