"""A command of two processes, started by the real torchrun, whose agent holds the store."""

import re
import subprocess
import sys

import pytest

PROGRAM = """
import signal
import sys

import torch

from pyserini_ance.commands import console
from pyserini_ance.distributed.world import World


def say(line):  # in one write, so that lines of two processes do not mix
    sys.stdout.write(f"{line}\\n")
    sys.stdout.flush()


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with World.join("cpu").session() as world:
        parts = [int(part) for part in world.gather(torch.tensor([world.rank + 1]))]
        say(f"{world.on_main(lambda: 'made once')} {parts}")
        world.barrier()
    say("closed")
    with World.join("cpu").session() as world:
        if world.rank == 1:
            raise ValueError("seven is odd")
        world.barrier()


console.run(main)
"""


@pytest.mark.long
def test_a_command_under_torchrun_ends_with_the_reason_on_all_processes(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    lines = done.stdout.splitlines()
    assert lines.count("made once [1, 2]") == lines.count("closed") == 2, done.stderr
    assert done.returncode == 1
    # Not `startswith`: all processes share one stderr, and torch's C++ writes its own lines in parts.
    assert len(re.findall(r"\berror: seven is odd", done.stderr)) == 1
