"""Forked child processes that speak through a pipe, and fixtures that make locks fast."""

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
        self.connection, child_end = context.Pipe()
        self.process: BaseProcess = context.Process(target=_run, args=(function, host, child_end, arguments))
        # Python warns of forks next to threads; the threads here only sleep.
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            self.process.start()
        self.pid = self.process.pid

    def receive(self, seconds: float = 60):
        """Return the next message of the child."""
        assert self.connection.poll(seconds), "the child sent nothing"
        return self.connection.recv()

    def ask(self, question="go on"):
        """Send a message, and return the answer."""
        self.connection.send(question)
        return self.receive()

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def _run(function, host: str | None, connection: Connection, arguments: tuple) -> None:
    if host:
        socket.gethostname = lambda: host
    function(connection, *arguments)


@pytest.fixture
def fork():
    """Start children, which may take themselves to be on another host; kill those left at the end."""
    children = []

    def start(function, *arguments, host: str | None = None) -> Child:
        children.append(Child(function, *arguments, host=host))
        return children[-1]

    yield start
    for child in children:
        child.end()


@pytest.fixture
def fast_locks(monkeypatch):
    """Heartbeats and polls of locks in hundredths of a second."""
    monkeypatch.setattr("pyserini_ance.storage.role_lock.BEAT_SECONDS", 0.02)
    monkeypatch.setattr("pyserini_ance.storage.lock_file.POLL_SECONDS", 0.01)


@pytest.fixture
def short_timeout(fast_locks, monkeypatch):
    """A process of another host counts as lost after a moment of silence."""
    monkeypatch.setattr("pyserini_ance.storage.liveness.LOST_SECONDS", 0.4)
