"""Another process that is inside a `with` block."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def elsewhere(imports: str, block: str, *arguments: object) -> Iterator[subprocess.Popen]:
    """Yield a process inside `with block:`, `arguments` in sys.argv; it ends with its input, or is killed."""
    inside = "    print(flush=True)\n    sys.stdin.read()"
    program = f"import sys\nfrom pathlib import Path\n{imports}\nwith {block}:\n{inside}"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "\n"
        yield process
        process.kill()
