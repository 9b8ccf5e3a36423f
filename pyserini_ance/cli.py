"""How every command starts and ends: threads that wait politely; a result, or one clear message and a defined exit code."""

import argparse
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyserini_ance.distributed.loss import PeerError

FAILED = 2
INTERRUPTED = 130
FIRST_SPEAKS_SECONDS = 20


def wait_politely() -> None:
    """Let GNU OpenMP's threads spin for microseconds only before they sleep. Has no effect once torch is imported.

    By default they spin for milliseconds: on 2 cores with another busy process a training step took 3 to 10 times as long.
    Not spinning at all (OMP_WAIT_POLICY=PASSIVE) costs 10 % of a step on a quiet machine.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def log_to_stderr() -> None:
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("pyserini_ance").setLevel(logging.INFO if is_main() else logging.WARNING)


def is_main() -> bool:
    """Whether this is the only process, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def from_one_on(text: str) -> int:
    """The type of an argument that counts."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def run(main: Callable[[], int | None]) -> None:
    """Call `main` and exit with what it returns (None is 0).

    ValueError, OSError and RuntimeError are for users: `error: ...` on stderr, exit code 2; any other exception is our
    own mistake and keeps its traceback. PYSERINI_ANCE_DEBUG=1 shows every traceback. Of processes that torchrun started
    and that end for the same reason, one of each host says it.
    """
    wait_politely()
    try:
        code = main() or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        if _local_rank() == 0:
            print("interrupted", file=sys.stderr)
        _tell_torchrun("interrupted")
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has gone; without this Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    except (ValueError, OSError, RuntimeError) as error:
        if os.environ.get("PYSERINI_ANCE_DEBUG") == "1":
            traceback.print_exc()
        message = str(error) or type(error).__name__
        if _is_ours_to_say(error):
            print(f"error: {message}", file=sys.stderr)
        _tell_torchrun(message)
        code = FAILED
    sys.exit(code)


def _is_ours_to_say(error: Exception) -> bool:
    if isinstance(error, PeerError):
        # The other says itself what it failed of, unless it died; the first process that is left says it for all of this host.
        return _local_rank() == 0 or (error.loss.died and error.loss.rank == 0 and _local_rank() == 1)
    if _local_rank() > 0 and not _has_joined():
        _let_the_first_speak()
    return True


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def _has_joined() -> bool:
    return "torch" in sys.modules and sys.modules["torch"].distributed.is_initialized()


def _let_the_first_speak() -> None:
    """Before they have joined, all processes of a host read the same recipe and fail alike: as soon as the first has ended,
    torchrun ends the others.
    """
    try:
        time.sleep(FIRST_SPEAKS_SECONDS)
    except KeyboardInterrupt:
        sys.exit(FAILED)


def _tell_torchrun(message: str) -> None:
    """For the last lines that it prints, which otherwise say only that a process has failed."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        said = {"message": message, "extraInfo": {"py_callstack": message, "timestamp": str(int(time.time()))}}
        with suppress(OSError):
            Path(path).write_text(json.dumps({"message": said}), encoding="utf-8")
