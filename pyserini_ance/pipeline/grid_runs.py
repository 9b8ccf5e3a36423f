"""Train all runs of a grid, each in a subprocess, and write one table of them; several processes may share a
grid: the jobs of one command, and several commands."""

import json
import logging
import os
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyserini_ance.encoders.hardware import usable_cores
from pyserini_ance.evaluation.grid_rows import GridRow, read_row
from pyserini_ance.pipeline.grid_progress import Progress
from pyserini_ance.pipeline.grid_record import GridRecord, has_begun, is_finished
from pyserini_ance.pipeline.subprocess_run import beside, train_in_subprocess
from pyserini_ance.recipe.grid_spec import RECIPE, Grid, Point, settings_of
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.rundir import RunDir, load_recipe
from pyserini_ance.storage.error_text import text_of
from pyserini_ance.storage.locks import LockHeld
from pyserini_ance.storage.role import Role
from pyserini_ance.trainer.resume import differing_settings, has_recipe

LOCKS = ".locks"  # in a grid's folder: which process works on which of its runs
POLL_SECONDS = 2
log = logging.getLogger(__name__)


class FailedElsewhere(RuntimeError):
    """A run has failed in another process since this grid started."""


@dataclass(frozen=True)
class GridRuns:
    """The runs of a grid, each in `folder / <name of its combination>`.

    Finished runs are kept, stopped ones resumed. A folder with other combinations of the same keys, recipe
    and overrides is continued: its tables list what has finished of them, too.

    `recipe` is that of the combinations that name none. A stage that starts from the run of a recipe
    (`init_from: {recipe: ...}`) starts from a run of this grid if the grid has that recipe with the same
    settings: a grid over seeds has a warm-up for each seed.
    """

    recipe: str | None
    overrides: Sequence[str]
    grid: Grid
    folder: Path

    def check(self, overwrite: bool = False) -> dict[str, Recipe]:
        """The recipe of each combination.

        Raises ValueError, before anything is trained, with the first invalid one, for an override of a key of
        the grid, and, without `overwrite`, if the folder holds runs of another grid.
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
        if both := self.grid.labels.keys() & {override.partition("=")[0] for override in self.overrides}:
            raise ValueError(
                f"{', '.join(sorted(both))}: both a key of the --grid, whose values count, and an override; "
                "remove the override"
            )
        earlier = self._continued()
        known, recipes = self._with(earlier), dict[str, Recipe]()
        for name in self.grid.points:
            recipes[name] = self._load(name, known, earlier.keys() | recipes.keys())
        if not overwrite:
            for name, recipe in recipes.items():
                if has_begun(run := RunDir(self.folder / name)):
                    _check_settings(run, recipe)
            if others := self._record.others.keys() - earlier.keys():
                raise self._record.other_grid(others)
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
        progress = Progress({name: self._last_released(name) for name in recipes}, jobs)
        if dropped := self._record.others.keys() - (earlier := self._continued()).keys():
            log.warning(
                "grid: no longer in the tables, being of another grid: %s", ", ".join(sorted(dropped))
            )
        self._write(self._all_rows({}, recipes, overwrite, progress), earlier)
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
                    known = self._all_rows(rows, recipes, overwrite, progress)
                    self._write(known, self._record.others)
                    if len(progress.seconds) > trained:
                        progress.estimate([row.status for row in known])
            if len(rows) == settled:
                time.sleep(POLL_SECONDS)
        return all(row.status == "finished" for row in rows.values())

    def describe(self) -> str:
        """The tables as last written."""
        return (self.folder / "grid.md").read_text(encoding="utf-8")

    @property
    def _record(self) -> GridRecord:
        return GridRecord(self.folder, self.grid)

    def _continued(self) -> dict[str, Point]:
        """The recorded combinations of these keys whose runs are what this grid would make of them."""
        others = self._record.others
        if self._record.keys != list(self.grid.labels):
            return {}
        known = self._with(others)
        return {name: point for name, point in others.items() if self._would_train(name, known)}

    def _would_train(self, name: str, known: Grid) -> bool:
        """Whether the run of a recorded combination has the recipe that this grid would give it."""
        try:
            return has_recipe(RunDir(self.folder / name), self._load(name, known, known.points))
        except (ValueError, OSError, RuntimeError):  # the recipe given has no such key, or the run is damaged
            return False

    def _with(self, others: Mapping[str, Point]) -> Grid:
        return Grid({**others, **self.grid.points})

    def _load(self, name: str, known: Grid, earlier: Container[str]) -> Recipe:
        source: str | None = known.points[name].get(RECIPE, self.recipe)
        if source is None:  # only of a recorded combination: see Grid.names_recipes
            raise ValueError(f"--grid, {name}: no recipe is given")
        overrides = [*self.overrides, *known.overrides(name)]
        try:
            recipe = load_recipe(source, *overrides).recipe
            started = load_recipe(
                source, *overrides, *self._starts_in_grid(name, recipe, known, earlier)
            ).recipe
            # A start from the same recipe's run in this grid makes no variant.
            return started.model_copy(update={"expect": recipe.expect})
        except (ValueError, FileNotFoundError) as error:
            raise ValueError(f"--grid, {name}: {error}") from None

    def _starts_in_grid(
        self, name: str, recipe: Recipe, known: Grid, earlier: Container[str]
    ) -> Iterator[str]:
        """Overrides that let stages start from runs of this grid.

        Raises ValueError if such a run comes later in it.
        """
        for stage, settings in recipe.stages.items():
            init_from = settings.init_from
            if not isinstance(init_from, InitFrom) or not init_from.recipe:
                continue
            other = known.with_recipe(name, init_from.recipe)
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
        return settings_of(self.grid.points[name], self.grid.labels)

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
            previous = self._holder(name)
            with lock.held(name):
                self._train(run, recipe, overwrite, progress, previous)
            return read_row(run.folder, self._settings(name))
        except LockHeld as held:
            progress.skip(name, held)
            return None
        except (ValueError, OSError, RuntimeError) as error:
            progress.fail(name, error, isinstance(error, FailedElsewhere))
            return GridRow(run.folder, self._settings(name), "failed", reason=text_of(error))

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

    def _lock(self, name: str) -> Role:
        (self.folder / LOCKS).mkdir(parents=True, exist_ok=True)
        return Role(self.folder / LOCKS / f"{name}.json")

    def _last_released(self, name: str) -> float:
        """Since when the run's last holder had its lock; 0 without one, or while it has it."""
        holder = self._holder(name)
        return holder["since"] if holder and not self._lock(name).is_held else 0

    def _holder(self, name: str) -> dict[str, Any] | None:
        try:
            return self._lock(name).read()
        except (OSError, RuntimeError):  # reported when it is the run's turn
            return None

    def _preview(self, name: str, recipe: Recipe, overwrite: bool, progress: Progress) -> GridRow:
        """The row of a run before its turn: another process may have finished it, or be working on it."""
        run, is_held = RunDir(self.folder / name), self._lock(name).is_held
        try:
            is_kept = not overwrite or (progress.was_held_since(name, self._holder(name)) and not is_held)
            if is_kept and _has_finished(run, recipe):
                return read_row(run.folder, self._settings(name))
        except (ValueError, OSError, RuntimeError):  # reported when it is the run's turn
            is_held = False
        return GridRow(run.folder, self._settings(name), "running" if is_held else "waiting")

    def _all_rows(
        self, rows: Mapping[str, GridRow], recipes: Mapping[str, Recipe], overwrite: bool, progress: Progress
    ) -> list[GridRow]:
        return [
            rows.get(name) or self._preview(name, recipe, overwrite, progress)
            for name, recipe in recipes.items()
        ]

    def _write(self, rows: Sequence[GridRow], others: Mapping[str, Point]) -> None:
        self._record.write(rows, others, self.recipe, self.overrides)


def _with_threads(recipe: Recipe, jobs: int) -> Recipe:
    """The recipe with an equal share of the cores, unless it sets `threads`."""
    share = max(1, usable_cores() // jobs)
    return recipe.model_copy(update={"threads": recipe.threads or share})


def _has_finished(run: RunDir, recipe: Recipe) -> bool:
    """Whether the run has finished. Raises ValueError if the folder holds a run of another recipe."""
    if not is_finished(run):
        return False
    _check_settings(run, recipe)
    return True


def _check_settings(run: RunDir, recipe: Recipe) -> None:
    if not has_recipe(run, recipe):
        raise ValueError(
            f"{run.folder} holds a run with other settings ({differing_settings(run, recipe)}); use "
            "--overwrite to replace the runs there, or pass another --output"
        )
