"""Start, wait for and kill real processes of commands, forked from one that has imported everything."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


class CommandServer:
    """The process that forks commands. `with CommandServer() as server: ...`"""

    def __enter__(self) -> "CommandServer":
        command = [sys.executable, str(Path(__file__).with_name("process_functions.py"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def start(
        self, command: str, arguments: Sequence[str], fault: str | None = None, stage: str = "", step: int = 0
    ) -> int:
        """The process id of `python -m pyserini_ance.<command> <arguments>`; `fault` is a function of
        run_failures.py.
        """
        return self._ask(command=command, arguments=list(arguments), fault=fault, stage=stage, step=step)[
            "pid"
        ]

    def wait(self, pid: int) -> dict:
        """The process's `code` (or minus the signal that ended it), `stdout` and `stderr`."""
        return self._ask(wait=pid)

    def has_ended(self, pid: int) -> bool:
        return self._ask(look=pid)["ended"]

    def kill(self, pid: int) -> dict:
        """End the process as a power cut would."""
        os.kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def run(self, command: str, arguments: Sequence[str], **fault) -> dict:
        return self.wait(self.start(command, arguments, **fault))

    def _ask(self, **request) -> dict:
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())
