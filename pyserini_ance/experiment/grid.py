"""A grid of runs, each in a folder and a process of its own, and one table of all. Several processes may share the runs of one grid."""

import json
import logging
import os
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyserini_ance.experiment.apart import train_apart
from pyserini_ance.experiment.resume import is_of_recipe
from pyserini_ance.measures.grid import RECORD, SEED, GridRow, columns_of, over_seeds, read_row
from pyserini_ance.measures.table import as_csv, table
from pyserini_ance.recipe.grid import RECIPE, Grid, value_text
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.start import Start
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.election import Held, term_of
from pyserini_ance.storage.files import write_json, write_whole
from pyserini_ance.storage.owner import lives
from pyserini_ance.storage.post import Post

POSTS = ".posts"  # in a grid's folder: who is at work on which of its runs
POLL_SECONDS = 2
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GridRuns:
    """The runs of a grid, each in `folder / <name of its combination>`. What has finished is kept, what has stopped goes on.

    `recipe` is that of combinations that name none. One that starts from the run of a recipe (`start: {recipe: ...}`) of which
    the grid has a run with the same settings starts from that one: a grid over seeds has a warm-up for each.
    """

    recipe: str | None
    overrides: Sequence[str]
    grid: Grid
    folder: Path

    def check(self) -> dict[str, Recipe]:
        """The recipe of each combination. Raises ValueError naming the combination that is none, before anything is trained."""
        if "RANK" in os.environ:
            raise ValueError("--grid starts each run itself, on one process; without torchrun: python -m pyserini_ance.train ... --grid ...")
        if RunDir(self.folder).state.exists():
            raise FileExistsError(f"{self.folder} holds a run; the runs of a grid need another --output, which holds nothing else")
        recipes: dict[str, Recipe] = {}
        for name in self.grid.points:
            recipes[name] = self._load(name, recipes)
        return recipes

    def conduct(self, recipes: Mapping[str, Recipe], overwrite: bool = False) -> bool:
        """Run what has not finished, and write the tables anew after each. Whether all have finished now.

        What another process is at work on is left to it, and waited for at the end; of one that dies or is stopped it is taken over.
        `overwrite` replaces what has finished before, not what others that share the grid finish from now on.
        """
        rows: dict[str, GridRow] = {}
        progress = Progress({name: self._over(name) for name in recipes})
        while waiting := [name for name in recipes if name not in rows]:
            settled = len(rows)
            for name in waiting:
                ready = self._starts_from(recipes[name]).isdisjoint(recipes.keys() - rows.keys())
                if ready and (row := self._row(name, recipes[name], overwrite, progress)):
                    rows[name] = row
                    self._write([rows.get(other) or self._seen(other, recipes[other], overwrite, progress) for other in recipes])
            if len(rows) == settled:
                time.sleep(POLL_SECONDS)
        return all(row.status == "finished" for row in rows.values())

    def describe(self) -> str:
        """The tables, as they were written last."""
        return (self.folder / "grid.md").read_text(encoding="utf-8")

    def _load(self, name: str, before: Container[str]) -> Recipe:
        which, overrides = self.grid.points[name].get(RECIPE, self.recipe), [*self.overrides, *self.grid.overrides(name)]
        try:
            recipe = load(which, *overrides).recipe
            return load(which, *overrides, *self._starts_beside(name, recipe, before)).recipe
        except (ValueError, FileNotFoundError) as error:
            raise ValueError(f"--grid, {name}: {error}") from None

    def _starts_beside(self, name: str, recipe: Recipe, before: Container[str]) -> Iterator[str]:
        """Overrides that make stages start from runs of this grid. Raises ValueError for one that comes later in it."""
        for stage, settings in recipe.stages.items():
            start = settings.start
            if not isinstance(start, Start) or not start.recipe or (other := self.grid.beside(name, start.recipe)) is None:
                continue
            if other not in before:
                raise ValueError(f"stages.{stage} starts from {start.recipe}, which comes later in the grid; name it first")
            place = {**start.model_dump(mode="json", exclude={"recipe"}), "run": str(self.folder / other)}
            yield f"stages.{stage}.start={json.dumps(place)}"

    def _settings(self, name: str) -> dict[str, str]:
        return {self.grid.labels[key]: value_text(value) for key, value in self.grid.points[name].items()}

    def _starts_from(self, recipe: Recipe) -> set[str]:
        """Runs of the folder that stages of the recipe start from."""
        starts = (settings.start for settings in recipe.stages.values())
        runs = (Path(start.run) for start in starts if isinstance(start, Start) and start.run)
        return {run.name for run in runs if run.parent == self.folder}

    def _row(self, name: str, recipe: Recipe, overwrite: bool, progress: "Progress") -> GridRow | None:
        """What came of it; None where another process is at work on it."""
        run, post = RunDir(self.folder / name), self._post(name)
        try:
            run.trainer.vacant()  # a killed grid's run takes a while to notice
            before = post.take(name)
            with post.hold(name):
                self._do(run, recipe, overwrite, progress, before)
            return read_row(run.folder, self._settings(name))
        except Held as held:
            progress.left(name, held)
            return None
        except (ValueError, OSError, RuntimeError) as error:
            progress.failed(name, error)
            return GridRow(run.folder, self._settings(name), "failed", reason=str(error))

    def _do(self, run: RunDir, recipe: Recipe, overwrite: bool, progress: "Progress", before: dict | None) -> None:
        """Under the run's post; `before` is what its last holder has left. Raises RuntimeError when the run fails, or has failed elsewhere
        since this process began.
        """
        name = run.folder.name
        elsewhere = progress.was_held_since(name, before)
        if (elsewhere or not overwrite) and _has_finished(run, recipe):
            progress.kept(name)
        elif elsewhere and before["status"] == "failed":
            progress.number += 1
            raise RuntimeError(before["reason"])
        else:
            progress.begins(name)
            train_apart(recipe, run, overwrite)
            progress.has_trained(name)

    def _post(self, name: str) -> Post:
        (self.folder / POSTS).mkdir(parents=True, exist_ok=True)
        return Post(self.folder / POSTS / f"{name}.json")

    def _over(self, name: str) -> int:
        """The last term of the run's post that is over."""
        holder = self._holder(name)
        return term_of(holder) - 1 if _holds(holder) else term_of(holder)

    def _holder(self, name: str) -> dict | None:
        try:
            return self._post(name).read()
        except (OSError, RuntimeError):  # to be told in its turn
            return None

    def _seen(self, name: str, recipe: Recipe, overwrite: bool, progress: "Progress") -> GridRow:
        """Of a run whose turn has not come: another process may have finished it, or be at work on it."""
        run, holder = RunDir(self.folder / name), self._holder(name)
        try:
            kept = not overwrite or (progress.was_held_since(name, holder) and not _holds(holder))
            if kept and _has_finished(run, recipe):
                return read_row(run.folder, self._settings(name))
        except (ValueError, OSError, RuntimeError):  # to be told in its turn
            holder = None
        return GridRow(run.folder, self._settings(name), "running" if _holds(holder) else "waiting")

    def _write(self, rows: Sequence[GridRow]) -> None:
        """`grid.md`, `grid.csv` and `grid.json`; over seeds, where they are a key, a table more and `seeds.csv`."""
        tables = {"grid": ([row.cells() for row in rows], columns_of(rows))}
        if SEED in self.grid.labels:
            tables["seeds"] = over_seeds(rows, self.grid.labels[SEED])
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, (cells, columns) in tables.items():
            write_whole(self.folder / f"{name}.csv", as_csv(cells, columns))
        write_whole(self.folder / "grid.md", "\n\n".join(table(cells, columns) for cells, columns in tables.values() if cells) + "\n")
        runs = [{"run": row.run.name, **row.cells(), "reason": row.reason} for row in rows]
        about = {"recipe": self.recipe, "overrides": list(self.overrides), "keys": {label: key for key, label in self.grid.labels.items()}}
        write_json(self.folder / RECORD, {**about, "runs": runs, **{name: cells for name, (cells, _) in tables.items() if name != "grid"}})


class Progress:
    """Says where a grid stands, and, from the runs that were trained by now, how long the others will take.

    `over`: of each run's post the last term that was over when this process began.
    """

    def __init__(self, over: Mapping[str, int]):
        self.runs, self.number, self.over = len(over), 0, over
        self.seconds: list[float] = []
        self._left: set[str] = set()

    def left(self, name: str, held: Held) -> None:
        """To the process that has it in hand."""
        if name not in self._left:
            log.info("grid: %s is left to another process: %s", name, held)
        self._left.add(name)

    def was_held_since(self, name: str, last: dict | None) -> bool:
        """By another process, whether this one has seen it or not; `last` is the last holder of the run's post before this one."""
        return term_of(last) > self.over[name]

    def kept(self, name: str) -> None:
        self.number += 1
        log.info("grid, %d of %d: %s has finished before", self.number, self.runs, name)

    def begins(self, name: str) -> None:
        self.number += 1
        self.since = time.perf_counter()
        log.info("grid, %d of %d: %s", self.number, self.runs, name)

    def has_trained(self, name: str) -> None:
        self.seconds.append(time.perf_counter() - self.since)
        left = self.runs - self.number
        minutes = left * sum(self.seconds) / len(self.seconds) / 60
        log.info("grid, %d of %d: %s has finished, %.0f seconds; about %.1f minutes to come", self.number, self.runs, name, self.seconds[-1], minutes)

    def failed(self, name: str, error: Exception) -> None:
        log.error("grid, %d of %d: %s has failed: %s", self.number, self.runs, name, error)


def _holds(holder: dict | None) -> bool:
    return holder is not None and holder["status"] == "running" and lives(holder) is not False


def _has_finished(run: RunDir, recipe: Recipe) -> bool:
    """Raises ValueError when the run that lies there is of another recipe."""
    if not (run.state.exists() and run.read_state()["status"] == "finished" and run.measures.exists()):
        return False
    if not is_of_recipe(run, recipe):
        raise ValueError(f"{run.folder} holds a run of other settings; use --overwrite to replace the runs there, or another --output")
    return True
