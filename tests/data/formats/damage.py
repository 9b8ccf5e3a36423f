"""Read damaged copies of samples: each must give an error that names the file, or agree with a reference
reader.

    python tests/data/formats/damage.py --copies 5000 --seed 1 [--data ../shared/data] [sample ...]

One file of a copy is damaged in one to three ways, determined by (seed, sample, number). A reader may raise
ValueError or OSError naming a file of the copy if the reference reader fails as well. Everything else is a
fault and is printed.
"""

import argparse
import logging
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from data.formats.damages import damaged
from data.formats.kinds import KINDS
from data.formats.samples import REAL, WRITTEN, Sample

SECONDS = 20
MESSAGE_CHARACTERS = 3000
REFUSED, EQUAL = "refused", "read equal"


class Copy(NamedTuple):
    """The result for one copy; `fault` describes what is wrong, and is empty if nothing is."""

    number: int
    file: str
    damages: list[str]
    outcome: str
    fault: str


class TooLong(BaseException):
    """Not a subclass of Exception, so that no reader catches it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def stop(*_):
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def copies(sample: Sample, folder: Path, name: str, seed: int, numbers: range) -> Iterator[Copy]:
    """Write damaged copies one after the other into a folder, which must be empty, and judge each."""
    for file, raw in (sample.files | sample.undamaged).items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(raw)
    whole = KINDS[sample.kind].read(folder)
    for number in numbers:
        random = Random(f"{seed} {name} {number}")
        file = random.choice(list(sample.files))
        damages, packed, raw = damaged(random, sample.files[file], packable=not file.endswith(".parquet"))
        path = folder / f"{file}{'.gz' * packed}"
        (folder / file).unlink()
        path.write_bytes(raw)
        yield Copy(number, file, damages, *judged(sample.kind, folder, whole))
        path.unlink()
        (folder / file).write_bytes(sample.files[file])


def judged(kind: str, folder: Path, whole: dict) -> tuple[str, str]:
    """The outcome and the fault of reading the folder; `whole` is what the undamaged sample holds."""
    try:
        expected = KINDS[kind].slowly(folder)
    except Exception:
        expected = None
    try:
        with time_limit(SECONDS):
            result = KINDS[kind].read(folder)
    except (ValueError, OSError) as error:
        return REFUSED, blamed(error, folder, expected)
    except TooLong:
        return "hang", f"no end after {SECONDS} seconds"
    except Exception as error:
        return "another exception", f"{type(error).__name__}: {error}"
    if expected is None:
        return compared(result, whole), "read what the slow reading refuses"
    return compared(result, whole), "" if result == expected else difference(result, expected)


def blamed(error: Exception, folder: Path, expected: dict | None) -> str:
    """The faults of an error message."""
    named = str(folder) in str(error) and not isinstance(error, UnicodeError)
    faults = {
        "names no file": not named,
        "good bytes": expected is not None,
        "a long message": len(str(error)) > MESSAGE_CHARACTERS,
    }
    result = [fault for fault, applies in faults.items() if applies]
    return f"{', '.join(result)}: {type(error).__name__}: {error}" if result else ""


def compared(result: dict, whole: dict) -> str:
    if result == whole:
        return EQUAL
    read_size, whole_size = size(result), size(whole)
    return f"read {'fewer' if read_size < whole_size else 'more' if read_size > whole_size else 'other'}"


def size(result: dict) -> int:
    """The number of records: documents, queries and judgments, or lines of a run."""
    if "documents" not in result:
        return sum(map(len, result.values()))
    return len(result["documents"]) + sum(
        1 + len(query[3]) for split in result["splits"].values() for query in split
    )


def difference(result: dict, expected: dict) -> str:
    key = next((key for key in expected if result.get(key) != expected[key]), "more keys")
    return f"read {str(result.get(key))[:600]}\n      not {str(expected.get(key))[:600]}"


def table(done: list[Copy]) -> str:
    outcomes = sorted({copy.outcome for copy in done})
    counts = Counter(
        (damage, copy.outcome) for copy in done for damage in copy.damages[:1] if len(copy.damages) == 1
    )
    counts.update(("several", copy.outcome) for copy in done if len(copy.damages) > 1)
    rows = [
        ("", *outcomes),
        ("all", *(str(sum(copy.outcome == outcome for copy in done)) for outcome in outcomes)),
    ]
    rows += [
        (damage, *(str(counts[damage, outcome] or "") for outcome in outcomes))
        for damage in sorted({damage for damage, _ in counts})
    ]
    return "\n".join(
        "  " + "".join(f"{cell:>12}" if column else f"{cell:<32}" for column, cell in enumerate(row))
        for row in rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "samples", nargs="*", metavar="sample", help=f"of {', '.join([*WRITTEN, *REAL])}; all, unless said"
    )
    parser.add_argument("--copies", type=int, default=1000, help="of each sample")
    parser.add_argument("--first", type=int, default=0, help="the number of the first copy: to see one again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(__file__).parents[3].parent / "shared" / "data",
        help="the folder of real files",
    )
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    faults = 0
    for name in args.samples or [*WRITTEN, *(REAL if args.data.is_dir() else {})]:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            sample = WRITTEN[name] if name in WRITTEN else REAL[name](args.data)
            done = list(
                copies(sample, Path(folder), name, args.seed, range(args.first, args.first + args.copies))
            )
        bad = [copy for copy in done if copy.fault]
        faults += len(bad)
        seconds = time.monotonic() - start
        print(f"{name}: {len(done)} copies, {seconds:.0f} seconds, {len(bad)} faults", flush=True)
        print(table(done), flush=True)
        for copy in bad[:20]:
            damages = ", ".join(copy.damages)
            fault = f"{copy.outcome}: {copy.fault[:1500]}"
            print(f"  {copy.number} {copy.file} ({damages}): {fault}", flush=True)
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
