"""A generation of negatives: the tables that were mined with one checkpoint, and a report on them; published as a folder."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyserini_ance.negatives.source import TableSource
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.stage import Stage
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json, sha256_json, write_json
from pyserini_ance.storage.publish import is_complete, publishing, read_manifest

TableKey = tuple[str, int]
REPORT = "report.json"
FORMER_TABLES = "former tables"  # in the manifest, the digest of those that were taken over


@dataclass(frozen=True)
class Generation:
    """Tables by (term, position in the term), of the checkpoint before `step`.

    `report` holds `tables` (what `table_report` says of each) and `seconds` (by part of the work).
    """

    folder: Path
    step: int
    weights: str
    tables: dict[TableKey, NegativeTable]
    report: dict

    def describe(self) -> str:
        """One line: what it took, and what is new in it."""
        parts = ", ".join(f"{part.replace('_', ' ')} {seconds:.1f} s" for part, seconds in self.report["seconds"].items())
        return f"{parts}; {'; '.join(_describe(name, report) for name, report in self.report['tables'].items())}"


def _describe(name: str, report: dict) -> str:
    new = "" if report["new_share"] is None else f", {report['new_share']:.0%} new"
    margin = f", margin {report['margin']['mean']:.3f}" if "margin" in report else ""
    dropped = "".join(f", {count} {what} dropped" for what, count in report["dropped"].items())
    return f"{name}: {report['candidates']} candidates{new}{margin}{dropped}"


def publish_generation(
    folder: Path, tables: Mapping[TableKey, NegativeTable], reports: dict[str, dict], seconds: dict[str, float], about: dict
) -> None:
    """Write `tables` with what they were made from (`about`: stage, step, weights, data) and what is to be said of them."""
    start = time.perf_counter()
    with publishing(folder, about) as claimed:
        for key, table in tables.items():
            table.save(claimed / table_name(key))
        seconds = {**seconds, "write": time.perf_counter() - start}
        report = {"tables": reports, "seconds": {part: round(value, 3) for part, value in seconds.items()}}
        write_json(claimed / REPORT, report)


def open_generation(folder: Path, made_from: Mapping[str, str]) -> Generation:
    """A published generation, verified. Raises RuntimeError when its manifest says anything else than `made_from` (weights, data)."""
    manifest = read_manifest(folder)
    for key, expected in made_from.items():
        if manifest[key] != expected:
            raise RuntimeError(f"{folder} was mined with {key} {manifest[key][:12]}, expected {expected[:12]}; remove it, or bring that {key} back")
    names = sorted({str(Path(part).parent) for part in manifest["parts"] if part != REPORT})
    tables = {(n.rpartition(".")[0], int(n.rpartition(".")[2])): NegativeTable.load(folder / n) for n in names}
    report = read_json(folder / REPORT)
    return Generation(folder, manifest["step"], manifest["weights"], tables, report)


def table_digest(folder: Path) -> str:
    """Of a published generation's tables: what was made from them names it."""
    return sha256_json({name: part["sha256"] for name, part in read_manifest(folder, verify=False)["parts"].items() if name != REPORT})


def in_use(stage: Stage, adoptions: Sequence[dict]) -> list[dict]:
    """Of a stage's adoptions, in order, those whose tables are in use after them: static ones of the first, others of the last."""
    static = mined_sources(stage).keys() - mined_sources(stage, refreshed_only=True).keys()
    return [*(adoptions[:1] if static else []), *adoptions[-1:]]


def newest_generation_before(run: RunDir, stage: str, step: int) -> Path | None:
    """The folder of the last complete generation of `stage` from a checkpoint before `step`."""
    folders = sorted(run.negatives.glob(f"{stage}-????????")) if run.negatives.exists() else []
    return next((f for f in reversed(folders) if is_complete(f) and f.name < run.generation(stage, step).name), None)


def mined_sources(stage: Stage, refreshed_only: bool = False) -> dict[TableKey, TableSource]:
    """The sources of a stage that have tables, by (term, position in the term)."""
    return {
        (name, position): source
        for name, term in stage.terms.items()
        for position, source in enumerate(term.negatives)
        if source.has_table and (source.refreshed or not refreshed_only)
    }


def table_name(key: TableKey) -> str:
    return f"{key[0]}.{key[1]}"
