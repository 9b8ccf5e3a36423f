"""What all commands share: parsers, logging, and an outcome as one clear message and a defined exit code."""

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

from pyserini_ance.distributed.failures import FAILED, INTERRUPTED, PeerError
from pyserini_ance.storage.error_text import text_of

MAIN_REPORTS_SECONDS = 20
TESTS = ("t", "permutation")  # of --test, paired
RANKING = "RUN for the final ranking of a run directory, RUN:ROW for that of a row of its results table"


def command_parser(name: str, description: str, example: str, details: str = "") -> argparse.ArgumentParser:
    """The parser of `pyserini-ance NAME`; its help ends with `details` and an example."""
    epilog = f"{details}\n\nexample:\n  {example}" if details else f"example:\n  {example}"
    return argparse.ArgumentParser(
        prog=f"pyserini-ance {name}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def positive_int(text: str) -> int:
    """The type of an argument that is a count."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def refuse_options(
    parser: argparse.ArgumentParser, args: argparse.Namespace, reason: str, *options: str
) -> None:
    """Exit with the reason if options that have no effect here have other values than their defaults."""
    names = {option: option.removeprefix("--").replace("-", "_") for option in options}
    given = [option for option, name in names.items() if getattr(args, name) != parser.get_default(name)]
    if given:
        parser.error(f"{reason}; remove {', '.join(given)}")


def output_file(text: str) -> Path:
    """The type of an argument that is a file to write.

    Raises IsADirectoryError for a folder, FileExistsError for a name of a run directory's own files.
    """
    from pyserini_ance.runs.rundir import owner_of

    path = Path(text)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; --output names the file to write")
    _check_parents(path)
    if run := owner_of(path):
        raise FileExistsError(
            f"{path} is a name for the own files of the run directory {run.folder}; pass another --output"
        )
    return path


def output_folder(text: str | Path) -> Path:
    """The type of an argument that is a folder to write. Raises NotADirectoryError for a file."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{path} is a file; --output names a folder")
    _check_parents(path)
    return path


def _check_parents(path: Path) -> None:
    if file := next((parent for parent in path.parents if parent.is_file()), None):
        raise NotADirectoryError(f"{file} is a file, so that {path} cannot be written; pass another --output")


def add_ranking_source(parser: argparse.ArgumentParser) -> None:
    """The argument that names a ranking: `source`, as pipeline/ranking_inputs.py reads it."""
    parser.add_argument("source", metavar="RUN|RECIPE", help=f"{RANKING}, or a recipe with --run")


def add_questions(group: argparse._ArgumentGroup) -> None:
    """The argument that names a file of questions in place of a split."""
    group.add_argument(
        "--questions",
        type=Path,
        metavar="FILE",
        help="questions and answers in a file of DPR (.csv, .txt, .json), instead of a split",
    )


def add_foreign_encoder(parser: argparse.ArgumentParser) -> None:
    """The settings of an encoder that this package has not saved; `foreign_settings` reads them."""
    title = "an encoder that pyserini_ance has not saved (default: what sentence-transformers' files say)"
    add = parser.add_argument_group(title).add_argument
    add("--pooling", choices=("mean", "cls"), help="without such files: mean")
    unit = "scale vectors to unit length; without such files: no"
    add("--normalize", action=argparse.BooleanOptionalAction, default=None, help=unit)
    for side in ("query", "document"):
        add(f"--{side}-length", type=positive_int, metavar="TOKENS", help=f"cut a {side} there")


def foreign_settings(args: argparse.Namespace) -> dict[str, object]:
    """Those of `add_foreign_encoder` that are given, by the names that `load_encoder` has for them."""
    lengths = {"query": args.query_length, "document": args.document_length}
    given = {side: length for side, length in lengths.items() if length}
    values = {"pooling": args.pooling, "normalize": args.normalize, "length_tokens": given or None}
    return {key: value for key, value in values.items() if value is not None}


def log_to_stderr() -> None:
    """Log with the time of day; processes other than the main one log warnings only."""
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("pyserini_ance").setLevel(logging.INFO if is_main() else logging.WARNING)


def is_main() -> bool:
    """Whether this is the main process (rank 0), which it also is without torchrun."""
    return os.environ.get("RANK", "0") == "0"


def run(main: Callable[[], int | None]) -> None:
    """Call `main` and exit with the code that it returns (None is 0).

    ValueError, OSError and RuntimeError are for users: `error: ...` on stderr, exit code 1 (2 is argparse's,
    for wrong arguments). Any other exception is a bug and keeps its traceback. PYSERINI_ANCE_DEBUG=1 shows
    every traceback. If several processes of torchrun end for one reason, one of each host reports it.
    """
    try:
        code = main() or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        if _local_rank() == 0:
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
        message = _message(error)
        if _should_report(error):
            print(f"error: {message}", file=sys.stderr)
        _report_to_torchrun(message)
        code = FAILED
    sys.exit(code)


def _message(error: Exception) -> str:
    """The error's own text; for a file that only the system found missing, also where it was looked for."""
    if isinstance(error, FileNotFoundError) and error.filename:
        here = f"relative paths start at the working directory, now {Path.cwd()}"
        return f"no file or folder {error.filename} ({here})"
    return text_of(error)


def _should_report(error: Exception) -> bool:
    if isinstance(error, PeerError):
        # The failed process reports its own error, unless it died; local rank 0 reports it for this host.
        return _local_rank() == 0 or (error.loss.died and error.loss.rank == 0 and _local_rank() == 1)
    if _local_rank() > 0 and not _has_joined():
        _delay_other_ranks()
    return True


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def _has_joined() -> bool:
    return "torch" in sys.modules and sys.modules["torch"].distributed.is_initialized()


def _delay_other_ranks() -> None:
    """Let local rank 0 report an error first.

    Before they have joined, all processes of a host read the same recipe and fail in the same way: torchrun
    ends the others as soon as the first has ended.
    """
    try:
        time.sleep(MAIN_REPORTS_SECONDS)
    except KeyboardInterrupt:
        sys.exit(FAILED)


def _report_to_torchrun(message: str) -> None:
    """Give torchrun the reason for its summary, which otherwise says only that a process has failed."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
        report = {"message": {"message": message, "extraInfo": extra}}
        with suppress(OSError):
            Path(path).write_text(json.dumps(report), encoding="utf-8")
