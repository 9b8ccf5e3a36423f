import io
import subprocess
import sys

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from pyserini_ance.__main__ import main
from pyserini_ance.commands import console
from pyserini_ance.distributed.failures import PeerError


def _raise(error: BaseException):
    raise error


@pytest.mark.parametrize(
    ("outcome", "code", "stderr"),
    [
        (lambda: 1, 1, ""),
        (lambda: _raise(ValueError("steps is -1")), 1, "error: steps is -1\n"),
        (lambda: _raise(FileNotFoundError(2, "gone", "a.txt")), 1, "error: no file or folder a.txt ("),
        (lambda: _raise(RuntimeError()), 1, "error: RuntimeError\n"),
        (lambda: _raise(KeyboardInterrupt()), 130, "interrupted\n"),
        (main, 2, "error: unknown command 'trian' (did you mean 'train'?); commands: adapt, "),
    ],
)
def test_outcome_becomes_message_and_exit_code(outcome, code, stderr, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pyserini-ance", "trian"])
    monkeypatch.delenv("PYSERINI_ANCE_DEBUG", raising=False)
    with pytest.raises(SystemExit) as exit:
        console.run(outcome)
    assert exit.value.code == code and capsys.readouterr().err.startswith(stderr)


def test_debug_shows_the_traceback(capsys, monkeypatch):
    monkeypatch.setenv("PYSERINI_ANCE_DEBUG", "1")
    with pytest.raises(SystemExit):
        console.run(lambda: _raise(ValueError("steps is -1")))
    stderr = capsys.readouterr().err
    assert stderr.startswith("Traceback") and stderr.endswith("error: steps is -1\n")


@pytest.mark.parametrize(
    ("local_rank", "error", "said"),
    [
        (0, PeerError("process 1 of 4 failed"), True),
        (1, PeerError("process 0 of 4 failed"), False),  # which has reported it itself
        (1, ValueError("steps is -1"), True),  # torchrun has not ended this process in the meantime
    ],
)
def test_one_process_per_host_reports_the_error_of_all(local_rank, error, said, capsys, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", str(local_rank))
    monkeypatch.setattr(console, "MAIN_REPORTS_SECONDS", 0)
    with pytest.raises(SystemExit, match="1"):
        console.run(lambda: _raise(error))
    assert (f"error: {error}" in capsys.readouterr().err) == said


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_a_character_that_the_console_cannot_show_is_no_error(monkeypatch, encoding):
    stdout = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(SystemExit, match="0"):
        console.run(lambda: print("é 検 \udce9"))
    printed = stdout.buffer.getvalue().decode(encoding)
    assert printed.replace(r"\xe9", "é").replace(r"\u691c", "検") == "é 検 \\udce9\n"


def test_torchrun_gets_the_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    with pytest.raises(SystemExit):
        console.run(lambda: _raise(ValueError("steps is -1")))
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=1, error_file=str(tmp_path / "error.json"))
    assert "traceback : steps is -1" in str(ChildFailedError("train", {0: failure}))


def test_bugs_keep_their_traceback():
    with pytest.raises(KeyError):
        console.run(lambda: _raise(KeyError("x")))


def test_a_closed_stdout_causes_no_message():
    printing = "console.run(lambda: [print('line') for _ in range(100_000)] and None)"
    command = [sys.executable, "-c", f"from pyserini_ance.commands import console; {printing}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
