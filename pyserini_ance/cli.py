"""How every command starts and ends: threads that wait politely; a result, or one clear message and a defined exit code."""

import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

FAILED = 2
INTERRUPTED = 130


def wait_politely() -> None:
    """Let GNU OpenMP's threads spin for microseconds only before they sleep. Has no effect once torch is imported.

    By default they spin for milliseconds: on 2 cores with another busy process a training step took 3 to 10 times as long.
    Not spinning at all (OMP_WAIT_POLICY=PASSIVE) costs 10 % of a step on a quiet machine.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def log_to_stderr() -> None:
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    main_process = os.environ.get("RANK", "0") == "0"  # of those that torchrun started
    logging.getLogger("pyserini_ance").setLevel(logging.INFO if main_process else logging.WARNING)


def interrupt_on_termination() -> None:
    """A batch system's SIGTERM ends a run like Ctrl-C: its folder says where it stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def run_folder(recipe_name: str) -> Path:
    """Where the run of a recipe lies unless --output says otherwise."""
    return Path("runs") / recipe_name.replace("/", "-")


def run(main: Callable[[], int | None]) -> None:
    """Call `main` and exit with what it returns (None is 0).

    ValueError, OSError and RuntimeError are for users: `error: ...` on stderr, exit code 2; any other exception is our
    own mistake and keeps its traceback. PYSERINI_ANCE_DEBUG=1 shows every traceback.
    """
    wait_politely()
    try:
        code = main() or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has gone; without this Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    except (ValueError, OSError, RuntimeError) as error:
        if os.environ.get("PYSERINI_ANCE_DEBUG") == "1":
            traceback.print_exc()
        print(f"error: {str(error) or type(error).__name__}", file=sys.stderr)
        code = FAILED
    sys.exit(code)
