import subprocess
import sys

import pytest

from pyserini_ance import cli


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


def test_our_own_mistakes_keep_their_traceback():
    with pytest.raises(KeyError):
        cli.run(lambda: _raise(KeyError("x")))


def test_reader_that_leaves_early_causes_no_complaint():
    program = "from pyserini_ance import cli; cli.run(lambda: [print('line') for _ in range(100_000)] and None)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
