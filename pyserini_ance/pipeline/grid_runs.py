"""Train all runs of a grid, each in a subprocess, and write one table of them; several processes may share a
grid: the jobs of one command, and several commands."""

import json
import os
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyserini_ance.analysis.grid_tables import GRID_FILE, SEED, GridRow, columns_of, over_seeds, read_row
from pyserini_ance.encoders.hardware import usable_cores
from pyserini_ance.evaluation.legends import table_with_legend
from pyserini_ance.evaluation.tables import as_csv
from pyserini_ance.pipeline.grid_progress import Progress
from pyserini_ance.pipeline.subprocess_run import beside, train_in_subprocess
from pyserini_ance.recipe.grid_spec import RECIPE, Grid, value_text
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir, load_recipe
from pyserini_ance.storage.files import write_json, write_whole
from pyserini_ance.storage.liveness import is_alive
from pyserini_ance.storage.lock_file import LockHeld, fencing_token
from pyserini_ance.storage.role_lock import RoleLock
from pyserini_ance.trainer.resume import has_recipe

LOCKS = ".locks"  # in a grid's folder: which process works on which of its runs
POLL_SECONDS = 2


class FailedElsewhere(RuntimeError):
    """A run has failed in another process since this grid started."""


@dataclass(frozen=True)
class GridRuns:
    """The runs of a grid, each in `folder / <name of its combination>`.

    Finished runs are kept, stopped ones resumed.

    `recipe` is that of the combinations that name none. A stage that starts from the run of a recipe
    (`init_from: {recipe: ...}`) starts from a run of this grid if the grid has that recipe with the same
    settings: a grid over seeds has a warm-up for each seed.
    """

    recipe: str | None
    overrides: Sequence[str]
    grid: Grid
    folder: Path

    def check(self) -> dict[str, Recipe]:
        """The recipe of each combination.

        Raises ValueError with the first invalid one, before anything is trained.
        """
        if "RANK" in os.environ:
            raise ValueError(
                "--grid starts each run itself, on one process. Start it without torchrun: "
                "pyserini-ance train ... --grid ..."
            )
        if RunDir(self.folder).state.exists():
            raise FileExistsError(
                f"{self.folder} holds a run; pass another --output, which holds nothing but the "
                "runs of the grid"
            )
        recipes: dict[str, Recipe] = {}
        for name in self.grid.points:
            recipes[name] = self._load(name, recipes)
        return recipes

    def run(self, recipes: Mapping[str, Recipe], overwrite: bool = False, jobs: int = 1) -> bool:
        """Train the unfinished runs, `jobs` of them at once, and update the tables after each.

        Returns whether all runs have finished.

        Jobs share the cores equally, unless recipes set `threads`. A run on which another process works is
        skipped and waited for at the end; it is taken over if that process stops or dies. `overwrite`
        replaces the runs that had finished before this call, not those that other processes of the same grid
        finish later.
        """
        jobs = min(jobs, len(recipes))
        if jobs > 1:
            recipes = {name: _with_threads(recipe, jobs) for name, recipe in recipes.items()}
        progress = Progress({name: self._last_released_token(name) for name in recipes}, jobs)
        with beside(jobs - 1, lambda: self._run(recipes, overwrite, progress)):
            return self._run(recipes, overwrite, progress)

    def _run(self, recipes: Mapping[str, Recipe], overwrite: bool, progress: Progress) -> bool:
        """The work of one job."""
        rows: dict[str, GridRow] = {}
        while waiting := [name for name in recipes if name not in rows]:
            settled = len(rows)
            for name in waiting:
                ready = self._required_runs(recipes[name]).isdisjoint(recipes.keys() - rows.keys())
                trained = len(progress.seconds)
                if ready and (row := self._row(name, recipes[name], overwrite, progress)):
                    rows[name] = row
                    known = [
                        rows.get(other) or self._preview(other, recipes[other], overwrite, progress)
                        for other in recipes
                    ]
                    self._write(known)
                    if len(progress.seconds) > trained:
                        progress.estimate([row.status for row in known])
            if len(rows) == settled:
                time.sleep(POLL_SECONDS)
        return all(row.status == "finished" for row in rows.values())

    def describe(self) -> str:
        """The tables as last written."""
        return (self.folder / "grid.md").read_text(encoding="utf-8")

    def _load(self, name: str, earlier: Container[str]) -> Recipe:
        source: str | None = self.grid.points[name].get(RECIPE, self.recipe)
        assert source is not None, "check Grid.names_recipes first"
        overrides = [*self.overrides, *self.grid.overrides(name)]
        try:
            recipe = load_recipe(source, *overrides).recipe
            started = load_recipe(source, *overrides, *self._starts_in_grid(name, recipe, earlier)).recipe
            # A start from the same recipe's run in this grid makes no variant.
            return started.model_copy(update={"expect": recipe.expect, "variant_of": recipe.variant_of})
        except (ValueError, FileNotFoundError) as error:
            raise ValueError(f"--grid, {name}: {error}") from None

    def _starts_in_grid(self, name: str, recipe: Recipe, earlier: Container[str]) -> Iterator[str]:
        """Overrides that let stages start from runs of this grid.

        Raises ValueError if such a run comes later in it.
        """
        for stage, settings in recipe.stages.items():
            init_from = settings.init_from
            if not isinstance(init_from, InitFrom) or not init_from.recipe:
                continue
            other = self.grid.with_recipe(name, init_from.recipe)
            if other is None:
                continue
            if other not in earlier:
                raise ValueError(
                    f"stages.{stage} starts from {init_from.recipe}, which comes later in the grid; "
                    "list it first"
                )
            changed = init_from.model_dump(mode="json", exclude={"recipe"})
            yield f"stages.{stage}.init_from={json.dumps({**changed, 'run': str(self.folder / other)})}"

    def _settings(self, name: str) -> dict[str, str]:
        return {self.grid.labels[key]: value_text(value) for key, value in self.grid.points[name].items()}

    def _required_runs(self, recipe: Recipe) -> set[str]:
        """The runs of the grid that stages of the recipe start from."""
        origins = (settings.init_from for settings in recipe.stages.values())
        runs = (Path(origin.run) for origin in origins if isinstance(origin, InitFrom) and origin.run)
        return {run.name for run in runs if run.parent == self.folder}

    def _row(self, name: str, recipe: Recipe, overwrite: bool, progress: Progress) -> GridRow | None:
        """The row of a run, trained if necessary; None if another process works on it."""
        run, lock = RunDir(self.folder / name), self._lock(name)
        try:
            run.trainer.check_free()  # the run of a killed grid notices the death of its parent with a delay
            previous = lock.acquire(name)
            with lock.held(name):
                self._train(run, recipe, overwrite, progress, previous)
            return read_row(run.folder, self._settings(name))
        except LockHeld as held:
            progress.skip(name, held)
            return None
        except (ValueError, OSError, RuntimeError) as error:
            progress.fail(name, error, isinstance(error, FailedElsewhere))
            return GridRow(run.folder, self._settings(name), "failed", reason=str(error))

    def _train(
        self,
        run: RunDir,
        recipe: Recipe,
        overwrite: bool,
        progress: Progress,
        previous: dict[str, Any] | None,
    ) -> None:
        """Train the run under its lock, unless it has finished; `previous` is the record of the lock's last
        holder.

        Raises RuntimeError if the run fails, or has failed in another process since this one started.
        """
        name = run.folder.name
        held_elsewhere = progress.was_held_since(name, previous)
        if (held_elsewhere or not overwrite) and _has_finished(run, recipe):
            progress.keep(name, held_elsewhere)
        elif held_elsewhere and previous and previous["status"] == "failed":
            raise FailedElsewhere(previous["reason"])
        else:
            progress.begin(name)
            train_in_subprocess(recipe, run, overwrite, label=name if progress.jobs > 1 else None)
            progress.finish(name)

    def _lock(self, name: str) -> RoleLock:
        (self.folder / LOCKS).mkdir(parents=True, exist_ok=True)
        return RoleLock(self.folder / LOCKS / f"{name}.json")

    def _last_released_token(self, name: str) -> int:
        """The last fencing token of the run's lock whose holder has released it."""
        holder = self._holder(name)
        return fencing_token(holder) - 1 if _holds(holder) else fencing_token(holder)

    def _holder(self, name: str) -> dict[str, Any] | None:
        try:
            return self._lock(name).read()
        except (OSError, RuntimeError):  # reported when it is the run's turn
            return None

    def _preview(self, name: str, recipe: Recipe, overwrite: bool, progress: Progress) -> GridRow:
        """The row of a run before its turn: another process may have finished it, or be working on it."""
        run, holder = RunDir(self.folder / name), self._holder(name)
        try:
            is_kept = not overwrite or (progress.was_held_since(name, holder) and not _holds(holder))
            if is_kept and _has_finished(run, recipe):
                return read_row(run.folder, self._settings(name))
        except (ValueError, OSError, RuntimeError):  # reported when it is the run's turn
            holder = None
        return GridRow(run.folder, self._settings(name), "running" if _holds(holder) else "waiting")

    def _write(self, rows: Sequence[GridRow]) -> None:
        """Write `grid.md`, `grid.csv` and `grid.json`; if the grid has seeds, also a table over seeds and
        `seeds.csv`."""
        tables = {"grid": ([row.cells() for row in rows], columns_of(rows))}
        if SEED in self.grid.labels:
            tables["seeds"] = over_seeds(rows, self.grid.labels[SEED])
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, (cells, columns) in tables.items():
            write_whole(self.folder / f"{name}.csv", as_csv(cells, columns))
        texts = [table_with_legend(cells, columns) for cells, columns in tables.values() if cells]
        write_whole(self.folder / "grid.md", "\n\n".join(texts) + "\n")
        record = {
            "recipe": self.recipe,
            "overrides": list(self.overrides),
            "keys": {label: key for key, label in self.grid.labels.items()},
            "runs": [{"run": row.run.name, **row.cells(), "reason": row.reason} for row in rows],
            **{name: cells for name, (cells, _) in tables.items() if name != "grid"},
        }
        write_json(self.folder / GRID_FILE, record)


def _with_threads(recipe: Recipe, jobs: int) -> Recipe:
    """The recipe with an equal share of the cores, unless it sets `threads`."""
    share = max(1, usable_cores() // jobs)
    return recipe.model_copy(update={"threads": recipe.threads or share})


def _holds(holder: dict[str, Any] | None) -> bool:
    return holder is not None and holder["status"] == "running" and is_alive(holder) is not False


def _has_finished(run: RunDir, recipe: Recipe) -> bool:
    """Whether the run has finished. Raises ValueError if the folder holds a run of another recipe."""
    if not (run.state.exists() and run.read_state()["status"] == "finished" and run.measures.exists()):
        return False
    if not has_recipe(run, recipe):
        raise ValueError(
            f"{run.folder} holds a run with other settings; use --overwrite to replace the runs there, "
            "or pass another --output"
        )
    return True
