"""What the folder of a grid records: the combinations of all its commands, and the tables of their runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyserini_ance.evaluation.grid_rows import GRID_FILE, SEED, GridRow, columns_of, over_seeds, read_row
from pyserini_ance.evaluation.legends import table_with_legend
from pyserini_ance.evaluation.tables import as_csv
from pyserini_ance.recipe.grid_spec import Grid, Point, settings_of
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json_object, write_json, write_whole


@dataclass(frozen=True)
class GridRecord:
    """The record of `folder` beside `grid`, the one of this command."""

    folder: Path
    grid: Grid

    @property
    def keys(self) -> list[str]:
        """The keys of the recorded combinations."""
        return list(self._read("keys").values())

    @property
    def others(self) -> dict[str, Point]:
        """The recorded combinations that this command lacks and whose runs have begun."""
        return {
            name: point
            for name, point in self._read("combinations").items()
            if name not in self.grid.points and has_begun(RunDir(self.folder / name))
        }

    def other_grid(self, names: Iterable[str]) -> ValueError:
        """The error for recorded combinations that do not belong to the grid of this command."""
        keys, given = self.keys, list(self.grid.labels)
        if keys != given:
            other = f"a grid over {', '.join(keys)}, and this one is over {', '.join(given)}"
        else:
            other = f"a grid of another recipe or other overrides: {', '.join(sorted(names))}"
        return ValueError(
            f"{self.folder} holds runs of {other}. Pass another --output, or use --overwrite to make tables "
            "of this grid alone; the other runs stay"
        )

    def write(
        self,
        rows: Sequence[GridRow],
        others: Mapping[str, Point],
        recipe: str | None,
        overrides: Sequence[str],
    ) -> None:
        """Write `grid.md`, `grid.csv` and `grid.json`; if the grid has seeds, also a table over seeds and
        `seeds.csv`.

        others: the combinations of other commands to keep, in their places; those that have finished get a
        row.
        """
        points = {**others, **self.grid.points}
        places = {name: place for place, name in enumerate(self._read("combinations") if others else ())}
        points = dict(sorted(points.items(), key=lambda pair: places.get(pair[0], len(places))))
        by_name = {row.run.name: row for row in [*self._finished(others), *rows]}
        rows = [by_name[name] for name in points if name in by_name]
        labels = self.grid.labels
        tables = {"grid": ([row.cells() for row in rows], columns_of(rows))}
        if SEED in labels:
            tables["seeds"] = over_seeds(rows, labels[SEED])
        else:
            (self.folder / "seeds.csv").unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, (cells, columns) in tables.items():
            write_whole(self.folder / f"{name}.csv", as_csv(cells, columns))
        texts = [table_with_legend(cells, columns) for cells, columns in tables.values() if cells]
        write_whole(self.folder / "grid.md", "\n\n".join(texts) + "\n")
        record = {
            "recipe": recipe,
            "overrides": list(overrides),
            "keys": {label: key for key, label in labels.items()},
            "combinations": points,
            "runs": [{"run": row.run.name, **row.cells(), "reason": row.reason} for row in rows],
            **{name: cells for name, (cells, _) in tables.items() if name != "grid"},
        }
        write_json(self.folder / GRID_FILE, record)

    def _read(self, part: str) -> dict[str, Any]:
        return (read_json_object(self.folder / GRID_FILE) or {}).get(part, {})

    def _finished(self, names: Mapping[str, Point]) -> Iterator[GridRow]:
        for name, point in names.items():
            run = RunDir(self.folder / name)
            with suppress(ValueError, OSError, RuntimeError):  # another command overwrites it now
                if is_finished(run):
                    yield read_row(run.folder, settings_of(point, self.grid.labels))


def has_begun(run: RunDir) -> bool:
    """Whether there is more than a run that died in its preparation, which is replaced."""
    return run.can_resume or is_finished(run)


def is_finished(run: RunDir) -> bool:
    return run.state.exists() and run.read_state()["status"] == "finished" and run.measures.exists()
