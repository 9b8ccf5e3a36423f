"""Tables of benchmarks, and the same as JSON."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.rounds import Contest, Entry
from pyserini_ance.evaluation.tables import table
from pyserini_ance.storage.files import write_json

MANY = 100  # figures from here on have no decimals
LEGEND = """- CPU s, clock s: of one round, median: seconds of all threads on the CPU, and on the clock
- x NAME: times as fast as NAME by CPU time within a round: median (lowest-highest)
- GFLOP/s: useful operations, on real tokens or vectors, per second of CPU time
- MiB: peak memory of the process"""


def machine_as_text(machine: Mapping[str, Any]) -> str:
    """A line for the machine, one for the versions."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    commit = f", commit {machine['commit']}" if machine["commit"] else ""
    return (
        f"{machine['processor']} ({', '.join(machine['instructions'])}), {machine['threads']} thread(s), "
        f"{machine['date']}{commit}\n{versions}"
    )


def as_text(contest: Contest, entries: Sequence[Entry]) -> str:
    """Title, table and legend of a contest; contenders that did not take part are listed below."""
    rows = table_rows(contest, entries)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    left_out = [f"{entry.contender.name}: {entry.missing}" for entry in entries if entry.missing]
    return "\n".join([f"{contest.name}: {contest.title}", "", table(rows, columns), "", LEGEND, *left_out])


def table_rows(contest: Contest, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """A row for each contender that has measured."""
    present = [entry for entry in entries if entry.missing is None]
    named = [entry for entry in present if entry.contender.name == contest.reference]
    reference = next((entry.output for entry in [*named, *present] if entry.output is not None), None)
    rows = []
    for entry in present:
        row: dict[str, Any] = {"contender": entry.contender.name}
        row |= {"CPU s": _digits(entry.cpu_seconds()), "clock s": _digits(entry.seconds())}
        for other in (other for other in present if other.contender.against):
            median, lowest, highest = entry.speed_up(other)
            ratio = "1" if entry is other else f"{median:.2f} ({lowest:.2f}-{highest:.2f})"
            row[f"x {other.contender.name}"] = ratio
        if contest.flops:
            row["GFLOP/s"] = f"{contest.flops / entry.cpu_seconds() / 1e9:.0f}"
        if peaks_mib := [each.peak_mib for each in entry.measurements if each.peak_mib is not None]:
            row["MiB"] = f"{max(peaks_mib):.0f}"
        if contest.agreement and entry.output is not None and reference is not None:
            figures = contest.agreement(entry.output, reference)
            row |= {
                name: f"{value:.6f}" if value < MANY else f"{value:.0f}" for name, value in figures.items()
            }
        rows.append(row)
    return rows


def _digits(seconds: float) -> str:
    return f"{seconds:.3g}" if seconds < 100 else f"{seconds:.0f}"


def write_results(
    path: Path, machine: Mapping[str, Any], rounds: int, results: Sequence[tuple[Contest, Sequence[Entry]]]
) -> None:
    """Write every measurement, with the machine and the tables' rows."""
    contests = {
        contest.name: {
            "title": contest.title,
            "flops": contest.flops,
            "rows": table_rows(contest, entries),
            "measurements": {
                entry.contender.name: entry.missing or [each._asdict() for each in entry.measurements]
                for entry in entries
            },
        }
        for contest, entries in results
    }
    write_json(path, {"machine": dict(machine), "rounds": rounds, "benchmarks": contests})
