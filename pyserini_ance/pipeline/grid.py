"""Train all runs of a grid, each in a process of its own, and write one table of them."""

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TextIO

from tqdm.contrib.logging import logging_redirect_tqdm

from pyserini_ance.distributed.failures import FAILED, INTERRUPTED, interrupt_on_termination
from pyserini_ance.encoders.hardware import usable_cores
from pyserini_ance.evaluation.tables import last_stage, read_results, seconds_of, table_with_legend
from pyserini_ance.pipeline.experiment import train
from pyserini_ance.recipe.grid_spec import GRID_FILE, RECIPE, Grid
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir, load_recipe
from pyserini_ance.storage.error_text import text_of
from pyserini_ance.storage.files import beside, write_json, write_whole
from pyserini_ance.storage.locks import locked
from pyserini_ance.storage.progress import label_lines
from pyserini_ance.trainer.resume import differing_settings
from pyserini_ance.vectors.encoding import Shard

POLL_SECONDS = 0.5
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GridRuns:
    """The runs of a grid, each in `folder / <name of its combination>`.

    Finished runs are kept, stopped ones resumed. The tables are of the grid that was trained last.

    `recipe` is that of the combinations that name none. A stage that starts from the run of a recipe
    (`init_from: {recipe: ...}`) starts from a run of this grid if the grid has that recipe with the same
    settings: a grid over seeds has a warm-up for each seed.
    """

    recipe: str | None
    overrides: Collection[str]
    grid: Grid
    folder: Path

    def check(self, overwrite: bool = False) -> dict[str, Recipe]:
        """The recipe of each combination.

        Raises ValueError, before anything is trained, with the first invalid one, for an override of a key of
        the grid, and, without `overwrite`, for a run of other settings.
        """
        if "RANK" in os.environ:
            cure = "Start it without torchrun: pyserini-ance train ... --grid ..."
            raise ValueError(f"--grid starts each run itself, on one process. {cure}")
        if RunDir(self.folder).state.exists():
            cure = "pass another --output, which holds nothing but the runs of the grid"
            raise FileExistsError(f"{self.folder} holds a run; {cure}")
        if both := self.grid.labels.keys() & {override.partition("=")[0] for override in self.overrides}:
            raise ValueError(
                f"{', '.join(sorted(both))}: both a key of the --grid, whose values count, and an override; "
                "remove the override"
            )
        recipes: dict[str, Recipe] = {}
        for name in self.grid.points:
            recipes[name] = self._load(name, recipes)
            run = RunDir(self.folder / name)
            # A run that died in its preparation is replaced.
            begun = not overwrite and (run.can_resume or _is_finished(run))
            if begun and (differing := differing_settings(run, recipes[name])):
                cure = "use --overwrite to replace the runs there, or pass another --output"
                raise ValueError(f"{run.folder} holds a run with other settings ({differing}); {cure}")
        return recipes

    def run(
        self, recipes: Mapping[str, Recipe], overwrite: bool = False, jobs: int = 1, only: Shard | None = None
    ) -> bool:
        """Train the unfinished runs, `jobs` of them at once, and update the tables after each.

        Returns whether all runs have finished. Jobs share the cores equally, unless recipes set `threads`.

        only: part I of N of the runs, for the tasks of a job array: together they train all runs. A run and
        those that it starts from belong to the same part.
        """
        chosen = self._part(recipes, only) if only else list(recipes)
        places = {name: f"grid, {number} of {len(chosen)}: {name}" for number, name in enumerate(chosen, 1)}
        waiting = [name for name in chosen if overwrite or not _is_finished(RunDir(self.folder / name))]
        for name in chosen:
            if name not in waiting:
                log.info("%s had already finished", places[name])
        failed: dict[str, str] = {}  # why
        running: dict[str, _Job] = {}
        try:
            while True:
                unfinished = {*waiting, *running}
                ready = [run for run in waiting if unfinished.isdisjoint(self._required_runs(recipes[run]))]
                for name in ready[: jobs - len(running)]:
                    waiting.remove(name)
                    log.info("%s begins", places[name])
                    running[name] = self._start(name, recipes[name], overwrite, min(jobs, len(chosen)))
                statuses = dict.fromkeys(waiting, "waiting") | dict.fromkeys(running, "running")
                self._write(statuses, failed)
                if not running:
                    return all(self._row(name, {}, failed)["status"] == "finished" for name in chosen)
                wait([job.process.sentinel for job in running.values()])
                for name in [name for name, job in running.items() if not job.process.is_alive()]:
                    job = running.pop(name)
                    if reason := job.join():
                        failed[name] = reason
                        log.error("%s has failed: %s", places[name], reason)
                    else:
                        log.info("%s has finished in %.0f seconds", places[name], job.seconds)
        except BaseException:
            for job in running.values():
                job.process.terminate()
            for job in running.values():
                job.process.join()
            raise

    def _load(self, name: str, earlier: Collection[str]) -> Recipe:
        """The recipe of a combination; its stages start from runs of the `earlier` ones where they can."""
        source = self.grid.points[name].get(RECIPE, self.recipe)
        assert source is not None, "no combination names a recipe"  # see Grid.names_recipes
        overrides = [*self.overrides, *self.grid.overrides(name)]
        try:
            recipe = load_recipe(source, *overrides)
            stages = dict(recipe.stages)
            for stage, settings in recipe.stages.items():
                start = settings.init_from
                if not isinstance(start, InitFrom) or not (other := start.recipe):
                    continue
                if (run := self.grid.with_recipe(name, other)) is None:
                    continue
                if run not in earlier:
                    raise ValueError(
                        f"stages.{stage} starts from {other}, which comes later in the grid; list it first"
                    )
                in_grid = start.model_copy(update={"recipe": None, "folder": self.folder / run})
                stages[stage] = settings.model_copy(update={"init_from": in_grid})
            return recipe.model_copy(update={"stages": stages})
        except (ValueError, FileNotFoundError) as error:
            raise ValueError(f"--grid, {name}: {error}") from None

    def _required_runs(self, recipe: Recipe) -> set[str]:
        origins = (settings.init_from for settings in recipe.stages.values())
        runs = (Path(origin.folder) for origin in origins if isinstance(origin, InitFrom) and origin.folder)
        return {run.name for run in runs if run.parent == self.folder}

    def _part(self, recipes: Mapping[str, Recipe], only: Shard) -> list[str]:
        """The runs of part I of N: every N-th of those without a start here, and the runs after it."""
        groups: dict[str, str] = {}  # the first run of each run's group
        for name, recipe in recipes.items():
            joined = {groups[other] for other in self._required_runs(recipe) if other in groups}
            groups[name] = min(joined, key=list(recipes).index, default=name)
            groups |= {other: groups[name] for other, group in groups.items() if group in joined}
        firsts = list(dict.fromkeys(groups.values()))[only.number - 1 :: only.of]
        return [name for name in recipes if groups[name] in firsts]

    def _start(self, name: str, recipe: Recipe, overwrite: bool, jobs: int) -> "_Job":
        run = RunDir(self.folder / name)
        resume = not overwrite and run.can_resume
        # A run with a state but nothing to resume died during preparation: it is replaced.
        overwrite = overwrite or (run.state.exists() and not resume)
        if jobs > 1:
            threads = recipe.threads or max(1, usable_cores() // jobs)
            recipe = recipe.model_copy(update={"threads": threads})
        return _Job(lambda: train(recipe, run.folder, overwrite, resume), name if jobs > 1 else None)

    def _row(self, name: str, statuses: Mapping[str, str], failed: Mapping[str, str]) -> dict[str, Any]:
        """The row of a run: settings, status, why it has failed, and its results once it has finished.

        The status is that of this command's run; of another task of the job array by the run's state.
        """
        run = RunDir(self.folder / name)
        results: dict[str, Any] = {}
        reason = failed.get(name)
        status = "failed" if name in failed else statuses.get(name)
        try:
            if status is None and _is_finished(run):
                status, results = "finished", _results(run)
            elif status is None:
                state = run.read_state() if run.state.exists() else {}
                status = state["status"] if state.get("status") in ("running", "failed") else "waiting"
                reason = state.get("reason")
        except (ValueError, OSError, RuntimeError) as error:
            status, reason = "failed", text_of(error)
        return {"run": name, **self.grid.settings(name), "status": status, **results, "reason": reason}

    def _write(self, statuses: Mapping[str, str], failed: Mapping[str, str]) -> None:
        """Write `grid.md` and `grid.json`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # The task of a job array that writes last reads all states.
        with locked(beside(self.folder / "grid", "held"), what="the grid's tables"):
            rows = [self._row(name, statuses, failed) for name in self.grid.points]
            keys = {label: key for key, label in self.grid.labels.items()}
            status = [] if all(row["status"] == "finished" for row in rows) else ["status"]
            own = {"run", "status", "reason", *keys}
            results = dict.fromkeys(name for row in rows for name in row if name not in own)
            write_whole(self.folder / "grid.md", f"{table_with_legend(rows, [*keys, *status, *results])}\n")
            write_json(self.folder / GRID_FILE, {"recipe": self.recipe, "keys": keys, "runs": rows})


def _is_finished(run: RunDir) -> bool:
    return run.state.exists() and run.read_state()["status"] == "finished" and run.measures.exists()


def _results(run: RunDir) -> dict[str, Any]:
    """The last stage's final measures and best dev measure, and the seconds of all stages."""
    results = read_results(run.folder)
    last = last_stage(results["rows"])
    best = [one["value"] for one in RunLog(run, writes=False).decisions("best", last["row"])]
    measures = {name: last[name] for name in results["measures"]}
    return {**measures, "dev best": best[-1] if best else None, "seconds": seconds_of(results["rows"])}


class _Job:
    """A run in a forked process: importing everything again takes longer than a small run, and this process
    has trained nothing."""

    def __init__(self, work: Callable[[], object], label: str | None):
        self._reason = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        fork = multiprocessing.get_context("fork")
        self.process = fork.Process(target=_work, args=(work, self._reason, label))
        self._start = time.perf_counter()
        self.process.start()

    def join(self) -> str | None:
        """Wait for the end; returns why the run has failed, None if it has not."""
        self.process.join()
        self.seconds, code = time.perf_counter() - self._start, self.process.exitcode
        self._reason.seek(0)
        ended = f"killed by signal {-code}" if code and code < 0 else f"exit code {code}"
        return (self._reason.read() or ended) if code else None


def _work(work: Callable[[], object], reason: TextIO, label: str | None) -> None:
    """Train in the child; `label` begins what it logs.

    Ctrl-C reaches the parent alone, which then ends the child; if the parent is killed, the child exits on
    its own.
    """
    os.setsid()
    interrupt_on_termination()
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    begin = f"{label}: " if label else ""
    if label:
        label_lines(label)
    try:
        with logging_redirect_tqdm():
            work()
    except KeyboardInterrupt:
        print(f"{begin}interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except (ValueError, OSError, RuntimeError) as error:
        message = text_of(error)
        print(message, file=reason, end="", flush=True)
        if os.environ.get("PYSERINI_ANCE_DEBUG") == "1":
            traceback.print_exc()
        print(f"{begin}error: {message}", file=sys.stderr)
        sys.exit(FAILED)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    # Its pipe stays open in processes that it forked later; they would end one after another.
    while os.getppid() == parent.pid:
        time.sleep(POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
