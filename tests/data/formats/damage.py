"""Feed damaged copies of samples to their readers: each is refused with its file named, or read as a slow reading of its bytes says.

    python tests/data/formats/damage.py --copies 5000 --seed 1 [--data ../shared/data] [sample ...]

A copy is damaged in one of its files, in one to three ways, as (seed, sample, number) say. A reader may end in ValueError or
OSError, naming a file of the copy, where the slow reading refuses too; all else is a fault, and is printed.
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
    """What became of one: `fault` says what is wrong with it, "" for nothing."""

    number: int
    file: str
    damages: list[str]
    outcome: str
    fault: str


class TooLong(BaseException):
    """No Exception: no reader may catch it."""


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
    """Written into the folder one after the other, which must be empty at first."""
    for file, raw in (sample.files | sample.kept).items():
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
    """Outcome and fault of reading the folder; `whole` is the reading of the undamaged sample."""
    try:
        expected = KINDS[kind].slowly(folder)
    except Exception:
        expected = None
    try:
        with time_limit(SECONDS):
            found = KINDS[kind].read(folder)
    except (ValueError, OSError) as error:
        return REFUSED, blamed(error, folder, expected)
    except TooLong:
        return "hang", f"no end after {SECONDS} seconds"
    except Exception as error:
        return "another exception", f"{type(error).__name__}: {error}"
    if expected is None:
        return compared(found, whole), "read what the slow reading refuses"
    return compared(found, whole), "" if found == expected else difference(found, expected)


def blamed(error: Exception, folder: Path, expected: dict | None) -> str:
    """What is wrong with a refusal."""
    named = str(folder) in str(error) and not isinstance(error, UnicodeError)
    faults = {"names no file": not named, "good bytes": expected is not None, "a long message": len(str(error)) > MESSAGE_CHARACTERS}
    found = [fault for fault, there in faults.items() if there]
    return f"{', '.join(found)}: {type(error).__name__}: {error}" if found else ""


def compared(found: dict, whole: dict) -> str:
    if found == whole:
        return EQUAL
    left, given = size(found), size(whole)
    return f"read {'fewer' if left < given else 'more' if left > given else 'other'}"


def size(found: dict) -> int:
    """Records: documents, queries and judgments, or lines of a run."""
    if "documents" not in found:
        return sum(map(len, found.values()))
    return len(found["documents"]) + sum(1 + len(query[3]) for split in found["splits"].values() for query in split)


def difference(found: dict, expected: dict) -> str:
    key = next((key for key in expected if found.get(key) != expected[key]), "more keys")
    return f"read {str(found.get(key))[:600]}\n      not {str(expected.get(key))[:600]}"


def table(done: list[Copy]) -> str:
    outcomes = sorted({copy.outcome for copy in done})
    counts = Counter((damage, copy.outcome) for copy in done for damage in copy.damages[:1] if len(copy.damages) == 1)
    counts.update(("several", copy.outcome) for copy in done if len(copy.damages) > 1)
    rows = [("", *outcomes), ("all", *(str(sum(copy.outcome == outcome for copy in done)) for outcome in outcomes))]
    rows += [(damage, *(str(counts[damage, outcome] or "") for outcome in outcomes)) for damage in sorted({damage for damage, _ in counts})]
    return "\n".join("  " + "".join(f"{cell:>12}" if place else f"{cell:<32}" for place, cell in enumerate(row)) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", nargs="*", metavar="sample", help=f"of {', '.join([*WRITTEN, *REAL])}; all, unless said")
    parser.add_argument("--copies", type=int, default=1000, help="of each sample")
    parser.add_argument("--first", type=int, default=0, help="the number of the first copy: to see one again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[3].parent / "shared" / "data", help="the folder of real files")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    faults = 0
    for name in args.samples or [*WRITTEN, *(REAL if args.data.is_dir() else {})]:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            sample = WRITTEN[name] if name in WRITTEN else REAL[name](args.data)
            done = list(copies(sample, Path(folder), name, args.seed, range(args.first, args.first + args.copies)))
        bad = [copy for copy in done if copy.fault]
        faults += len(bad)
        print(f"{name}: {len(done)} copies, {time.monotonic() - start:.0f} seconds, {len(bad)} faults\n{table(done)}", flush=True)
        for copy in bad[:20]:
            print(f"  {copy.number} {copy.file} ({', '.join(copy.damages)}): {copy.outcome}: {copy.fault[:1500]}", flush=True)
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
