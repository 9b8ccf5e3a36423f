"""What all commands share: logging, and an outcome as one clear message and a defined exit code."""

import io
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyserini_ance.distributed.failures import FAILED, INTERRUPTED, PeerError, interrupt_on_termination
from pyserini_ance.storage.error_text import text_of

MAIN_REPORTS_SECONDS = 20


def begin() -> None:
    """Let SIGTERM end the command as Ctrl-C does, and log to stderr with the time of day: what begins and
    ends, dev measures, warnings.

    With PYSERINI_ANCE_DEBUG=1 also each adoption of negatives and what the rooms below do, such as BM25 or
    waiting for another process. Processes other than the main one log warnings only.
    """
    interrupt_on_termination()
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    debugs = os.environ.get("PYSERINI_ANCE_DEBUG") == "1"
    level = logging.DEBUG if debugs else logging.INFO
    logging.getLogger("pyserini_ance").setLevel(level if is_main() else logging.WARNING)
    for room in () if debugs else ("data", "encoders", "pyserini_bridge", "storage", "vectors"):
        logging.getLogger(f"pyserini_ance.{room}").setLevel(logging.WARNING)


def is_main() -> bool:
    """Whether this is the main process (rank 0), which it also is without torchrun."""
    return os.environ.get("RANK", "0") == "0"


def run(main: Callable[[], int | None]) -> None:
    """Call `main` and exit with the code that it returns (None is 0).

    ValueError, OSError and RuntimeError are for users: `error: ...` on stderr, exit code 1 (2 is argparse's,
    for wrong arguments). Any other exception is a bug and keeps its traceback. PYSERINI_ANCE_DEBUG=1 shows
    every traceback. If several processes of torchrun end for one reason, one of each host reports it.
    A character that the console cannot show is printed as its code, such as `\\u2026`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)  # it warns of what torchao does
    try:
        code = main() or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            print("interrupted", file=sys.stderr)
        _report_to_torchrun("interrupted")
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout (`| head`) has closed it; without this line Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    except (ValueError, OSError, RuntimeError) as error:
        if os.environ.get("PYSERINI_ANCE_DEBUG") == "1":
            traceback.print_exc()
        message = text_of(error)
        if isinstance(error, FileNotFoundError) and error.filename:  # which only the system found missing
            here = f"relative paths start at the working directory, now {Path.cwd()}"
            message = f"no file or folder {error.filename} ({here})"
        if _should_report(error):
            print(f"error: {message}", file=sys.stderr)
        _report_to_torchrun(message)
        code = FAILED
    sys.exit(code)


def _should_report(error: Exception) -> bool:
    """Whether this process of its host reports the error; another one has reported a PeerError.

    Before they have joined, all processes of a host read the same recipe and fail in the same way: the others
    wait until local rank 0 has reported, because torchrun ends them as soon as the first has ended.
    """
    if os.environ.get("LOCAL_RANK", "0") == "0":
        return True
    has_joined = "torch" in sys.modules and sys.modules["torch"].distributed.is_initialized()
    if not has_joined and not isinstance(error, PeerError):
        try:
            time.sleep(MAIN_REPORTS_SECONDS)
        except KeyboardInterrupt:
            sys.exit(FAILED)
    return not isinstance(error, PeerError)


def _report_to_torchrun(message: str) -> None:
    """Give torchrun the reason for its summary, which otherwise says only that a process has failed."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
        report = {"message": {"message": message, "extraInfo": extra}}
        with suppress(OSError):
            Path(path).write_text(json.dumps(report), encoding="utf-8")
