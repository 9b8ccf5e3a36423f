"""Progress bars, and lines where there is no terminal."""

import io
import logging

import pytest
from tqdm.contrib.logging import logging_redirect_tqdm

from pyserini_ance.storage import progress
from pyserini_ance.storage.progress import Lines, label_lines, progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time of the lines."""
    time = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: time[0])
    return time


def test_a_log_file_gets_whole_lines(now):
    file = io.StringIO()
    with Lines(desc="train ance", unit="step", total=50, file=file) as bar:
        for _ in range(50):
            now[0] += 1
            bar.update()
            bar.refresh()
    lines = file.getvalue().splitlines(keepends=True)
    assert [line.partition("/50")[0].split()[-1] for line in lines] == ["10", "20", "30", "40", "50", "50"]
    assert all(line.startswith("train ance:") and line.endswith("]\n") for line in lines)
    assert not {"\r", "\x1b"} & set(file.getvalue())


@pytest.fixture
def unlabelled(monkeypatch):
    monkeypatch.setattr(progress, "_label", None)
    yield
    logging.setLogRecordFactory(logging.LogRecord)


def test_labelled_lines_of_processes_that_share_a_terminal(now, monkeypatch, unlabelled):
    file, root = Terminal(), logging.getLogger()
    handler = logging.StreamHandler(file)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    monkeypatch.setattr(root, "handlers", [handler])
    monkeypatch.setattr(progress.sys, "stderr", file)
    label_lines("seed=1 100%")
    with logging_redirect_tqdm(), progress_bar(desc="train ance", total=2, file=file) as bar:
        root.warning("step %d of %s", 1, "100%")
        now[0] += 61
        bar.update(2)
        bar.refresh()
    first, *others = file.getvalue().splitlines()
    assert first == "WARNING seed=1 100%: step 1 of 100%"
    assert others and all(line.startswith("seed=1 100%: train ance: 100%") for line in others)
