"""A server of JSON on loopback: its free port, its log, its answers."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen


@contextmanager
def serving(command: Sequence[str] | str, log: Path, seconds: int = 300) -> Iterator:
    """Start `command --port FREE`, a shell's if it is one string; gives the function (path) -> answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    is_shell = isinstance(command, str)
    whole = f"{command} --port {port}" if is_shell else [*command, "--port", port]
    with open(log, "w") as file, subprocess.Popen(whole, stdout=file, stderr=file, shell=is_shell) as server:
        end = time.monotonic() + seconds

        def answer(path: str) -> dict:
            while True:
                try:
                    with urlopen(f"http://127.0.0.1:{port}/{path}", timeout=seconds) as reply:
                        return json.load(reply)
                except URLError as error:
                    assert isinstance(error.reason, ConnectionRefusedError), error
                    assert server.poll() is None and time.monotonic() < end, log.read_text()
                    time.sleep(0.5)

        try:
            yield answer
        finally:
            server.terminate()
