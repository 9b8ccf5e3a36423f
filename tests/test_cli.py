import subprocess
import sys

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from pyserini_ance import cli
from pyserini_ance.distributed.loss import Loss, PeerError


def _raise(error: BaseException):
    raise error


@pytest.mark.parametrize(
    ("outcome", "code", "stderr"),
    [
        (lambda: None, 0, ""),
        (lambda: 1, 1, ""),
        (lambda: _raise(ValueError("steps is -1")), 2, "error: steps is -1\n"),
        (lambda: _raise(FileNotFoundError(2, "No such file", "a.txt")), 2, "error: [Errno 2] No such file: 'a.txt'\n"),
        (lambda: _raise(RuntimeError()), 2, "error: RuntimeError\n"),
        (lambda: _raise(KeyboardInterrupt()), 130, "interrupted\n"),
    ],
)
def test_outcome_becomes_message_and_exit_code(outcome, code, stderr, capsys, monkeypatch):
    monkeypatch.delenv("PYSERINI_ANCE_DEBUG", raising=False)
    with pytest.raises(SystemExit) as exit:
        cli.run(outcome)
    assert (exit.value.code, capsys.readouterr().err) == (code, stderr)


def test_debug_shows_the_traceback(capsys, monkeypatch):
    monkeypatch.setenv("PYSERINI_ANCE_DEBUG", "1")
    with pytest.raises(SystemExit):
        cli.run(lambda: _raise(ValueError("steps is -1")))
    stderr = capsys.readouterr().err
    assert stderr.startswith("Traceback") and stderr.endswith("error: steps is -1\n")


HERE, THERE = Loss(1, "process 1 of 4 failed"), Loss(0, "process 0 of 4 has died", died=True)


@pytest.mark.parametrize(
    ("local_rank", "error", "said"),
    [
        (0, PeerError(HERE), True),
        (1, PeerError(HERE), False),  # that one has said it itself, and the first of this host
        (0, PeerError(THERE), True),
        (1, PeerError(THERE), True),  # nobody else on that host
        (2, PeerError(THERE), False),
        (1, ValueError("steps is -1"), True),  # nobody has ended this process meanwhile
    ],
)
def test_of_a_host_s_processes_one_says_what_befell_all(local_rank, error, said, capsys, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    monkeypatch.setattr(cli, "FIRST_SPEAKS_SECONDS", 0)
    with pytest.raises(SystemExit, match="2"):
        cli.run(lambda: _raise(error))
    assert (f"error: {error}" in capsys.readouterr().err) == said


def test_what_all_processes_of_a_host_find_wrong_is_left_to_the_first(capsys, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(cli.time, "sleep", lambda seconds: _raise(KeyboardInterrupt()))  # torchrun ends the others
    with pytest.raises(SystemExit, match="2"):
        cli.run(lambda: _raise(ValueError("steps is -1")))
    assert capsys.readouterr().err == ""


def test_torchrun_is_told_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    with pytest.raises(SystemExit):
        cli.run(lambda: _raise(ValueError("steps is -1")))
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=2, error_file=str(tmp_path / "error.json"))
    assert "traceback : steps is -1" in str(ChildFailedError("train", {0: failure}))


def test_our_own_mistakes_keep_their_traceback():
    with pytest.raises(KeyError):
        cli.run(lambda: _raise(KeyError("x")))


def test_reader_that_leaves_early_causes_no_complaint():
    program = "from pyserini_ance import cli; cli.run(lambda: [print('line') for _ in range(100_000)] and None)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
