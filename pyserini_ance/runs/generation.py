"""A generation of negatives: the tables that one refresh mined, published under the run and opened by whoever adopts them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyserini_ance.negatives.source import MinedSource
from pyserini_ance.negatives.table import NegativeTable
from pyserini_ance.recipe.models import Stage
from pyserini_ance.storage.publish import is_complete, publishing, read_manifest

TableKey = tuple[str, int]


@dataclass(frozen=True)
class Refreshed:
    """What came of one refresh: the tables it mined by (term, position), a report on each, the dev measure, seconds by part."""

    tables: dict[TableKey, NegativeTable] = field(default_factory=dict)
    reports: dict[str, dict] = field(default_factory=dict)
    dev: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    folder: Path | None = None


def publish_tables(folder: Path, tables: Mapping[TableKey, NegativeTable], about: dict) -> None:
    """Write `tables` with what they were made from. They are a function of it, so a complete generation stays as it is.

    Raises RuntimeError when the folder holds tables made from something else.
    """
    if is_complete(folder):
        published = read_manifest(folder)
        if any(published[key] != value for key, value in about.items()):
            raise RuntimeError(f"{folder} was mined with other weights or data than {about}; remove it")
        return
    with publishing(folder, about) as claimed:
        for key, table in tables.items():
            table.save(claimed / table_name(key))


def open_tables(folder: Path, weights: str, collection: str) -> dict[TableKey, NegativeTable]:
    """The tables of a published generation, verified. Raises RuntimeError when they were mined with other weights or data."""
    manifest = read_manifest(folder)
    if manifest["weights"] != weights:
        raise RuntimeError(f"{folder} was mined with weights {manifest['weights'][:12]}, expected {weights[:12]}")
    if manifest["collection"] != collection:
        raise RuntimeError(f"{folder} was mined from another collection ({manifest['collection'][:12]}) than this one ({collection[:12]})")
    names = sorted({str(Path(part).parent) for part in manifest["parts"]})
    return {(n.rpartition(".")[0], int(n.rpartition(".")[2])): NegativeTable.load(folder / n) for n in names}


def mined_sources(stage: Stage, refreshed_only: bool = False) -> dict[TableKey, MinedSource]:
    """The sources of a stage that have tables, by (term, position in the term)."""
    return {
        (name, position): source
        for name, term in stage.terms.items()
        for position, source in enumerate(term.negatives)
        if isinstance(source, MinedSource) and (source.refreshed or not refreshed_only)
    }


def table_name(key: TableKey) -> str:
    return f"{key[0]}.{key[1]}"
