"""How every command ends: with its result, or with one clear message and a defined exit code."""

import os
import sys
import traceback
from collections.abc import Callable

FAILED = 2
INTERRUPTED = 130


def run(main: Callable[[], int | None]) -> None:
    """Call `main` and exit with what it returns (None is 0).

    ValueError, OSError and RuntimeError are for users: `error: ...` on stderr, exit code 2; any other exception is our
    own mistake and keeps its traceback. PYSERINI_ANCE_DEBUG=1 shows every traceback.
    """
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
