import multiprocessing
import socket
import warnings
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import pytest


class Child:
    """A forked process that runs `function(connection, ...)`."""

    def __init__(self, function, *arguments, host: str | None = None):
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_run, args=(function, host, theirs, arguments))
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of forks beside threads; ours only sleep
            self.process.start()
        self.pid = self.process.pid

    def hear(self, seconds: float = 60):
        assert self.connection.poll(seconds), "the child says nothing"
        return self.connection.recv()

    def ask(self, question="go on"):
        self.connection.send(question)
        return self.hear()

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def _run(function, host: str | None, connection: Connection, arguments: tuple) -> None:
    if host:
        socket.gethostname = lambda: host
    function(connection, *arguments)


@pytest.fixture
def fork():
    """Start children, which may believe to be on another host; those left at the end are killed."""
    children = []

    def start(function, *arguments, host: str | None = None) -> Child:
        children.append(Child(function, *arguments, host=host))
        return children[-1]

    yield start
    for child in children:
        child.end()


@pytest.fixture
def quick(monkeypatch):
    """Heartbeats and looks of the post in hundredths of a second."""
    monkeypatch.setattr("pyserini_ance.storage.post.BEAT_SECONDS", 0.02)
    monkeypatch.setattr("pyserini_ance.storage.election.POLL_SECONDS", 0.01)


@pytest.fixture
def impatient(quick, monkeypatch):
    """A process of another host that is silent for a moment counts as lost."""
    monkeypatch.setattr("pyserini_ance.storage.watch.LOST_SECONDS", 0.4)
