"""RunDir: the names in a run directory, and the state that says who works there."""

import shlex
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from pyserini_ance.recipe.evaluation_settings import FinalEvaluation
from pyserini_ance.recipe.load import LoadedRecipe, load, read_settings, read_yaml
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.storage.files import write_whole
from pyserini_ance.storage.liveness import is_alive, remove_leftovers
from pyserini_ance.storage.lock_file import LockFile, LockHeld
from pyserini_ance.storage.publish import clear_abandoned
from pyserini_ance.storage.role_lock import RoleLock, Status

LAYOUT = 3
RUNS = Path("runs")
RECIPE = "recipe.yaml"
TRAINING_RANKS_CUTOFF = 100  # of the ranks in training-queries.positive_ranks.npy
FILES_OF_SPLITS = ("run.*.trec", "run.*.txt", "qrels.*.txt", "topics.*.*")


def step_of(name: str) -> int:
    """The step in the name of a checkpoint, a generation or an evaluation without suffix: `ance-00000040`."""
    return int(name.rpartition("-")[2])


def load_recipe(name: str | Path, *overrides: str) -> LoadedRecipe:
    """Load a recipe as `recipe.load` does, also that of a run directory.

    Raises RuntimeError when another version wrote the run directory.
    """
    if Path(name).name == RECIPE and Path(name).is_file():
        RunDir(
            Path(name).parent
        ).trainer.read()  # one error for an old directory, instead of one for each old key
    return load(name, *overrides)


def run_folder(recipe_name: str) -> Path:
    """The default run directory of a recipe, without --output."""
    return RUNS / recipe_name.replace("/", "-")


def check_start(overwrite: bool, resume: bool, replay: str | Path | None) -> None:
    """Raise ValueError for ways to start a run that exclude each other."""
    if resume and overwrite:
        raise ValueError("overwrite and resume exclude each other; choose one")
    if resume and replay is not None:
        raise ValueError(
            "replay and resume exclude each other: replay starts a new run, and resume alone continues a run "
            "that was started with replay"
        )


def owner_of(path: Path) -> "RunDir | None":
    """The run directory that has `path` among its own files and folders; None if there is none."""
    path = path.resolve()
    runs = (RunDir(folder) for folder in path.parents)
    return next((run for run in runs if run.state.exists() and run.recipe.exists() and run.owns(path)), None)


class RunDir:
    """Names, and the locks of the trainer (`state.json`) and the refresher (`refresher.json`).

    The modules that write under a name define its content.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.state = folder / "state.json"
        self.trainer = RoleLock(self.state, LAYOUT)
        self.refresher = RoleLock(folder / "refresher.json", LAYOUT)
        self.recipe = folder / RECIPE
        self.environment = folder / "environment.json"
        self.metrics = folder / "metrics.jsonl"
        self.decisions = folder / "decisions.jsonl"
        self.measures = folder / "measures.json"
        self.error = folder / "error.txt"
        self.checkpoints = folder / "checkpoints"
        self.negatives = folder / "negatives"
        self.evaluations = folder / "evaluations"
        self.teachers = folder / "teachers"
        self.requests = folder / "requests.json"
        self.replay = folder / "replay.jsonl"
        self.refresher_log = folder / "refresher.log"
        self.scratch = folder / "scratch"
        self.training_ranks = folder / "training-queries.positive_ranks.npy"
        self.model = folder / "model"
        self.index = folder / "index"
        self.run_files = folder / "runs"
        # Called with each record of the metrics as it is written, in this process.
        self.listeners: list[Callable[[dict[str, Any]], None]] = []

    def owns(self, path: Path) -> bool:
        """Whether a path below the directory is a name of what a run writes, or in a folder of it."""
        name = path.relative_to(self.folder).parts[0]
        own = {own.name for own in vars(self).values() if isinstance(own, Path) and own != self.folder}
        return name in own or any(fnmatch(name, pattern) for pattern in FILES_OF_SPLITS)

    def checkpoint(self, stage: str, step: int) -> Path:
        """A published folder with `encoder/`.

        Training can resume from it when it also holds `training.safetensors` and `progress.json`.
        """
        return self.checkpoints / f"{stage}-{step:08d}"

    def generation(self, stage: str, step: int) -> Path:
        """The published tables that were mined with the checkpoint of that stage and step."""
        return self.negatives / f"{stage}-{step:08d}"

    def teacher(self, name: str) -> Path:
        """A cross-encoder that the run has trained."""
        return self.teachers / name

    def evaluation(self, stage: str, step: int) -> Path:
        """The dev measure of the checkpoint of that stage and step."""
        return self.evaluations / f"{stage}-{step:08d}.json"

    def ranking(self, row: str, split: str) -> Path:
        """The ranking of a row of the results table."""
        return self.run_files / f"{row}.{split}.trec"

    def bm25_negatives(self, split: str) -> Path:
        """BM25's ranking of the training queries, from which negatives are drawn."""
        return self.run_files / f"bm25.{split}.negatives.trec"

    def final_run(self, split: str) -> Path:
        """The ranking of the final model, as a TREC run file."""
        return self.folder / f"run.{split}.trec"

    def qrels(self, split: str) -> Path:
        """The relevance judgments that the run files are measured with."""
        return self.folder / f"qrels.{split}.txt"

    def resume_command(self, processes: int = 1) -> str:
        """The command that continues the run with its own recipe, on as many processes of one host."""
        program = ["pyserini-ance"]
        if processes > 1:
            program = ["torchrun", "--nproc-per-node", str(processes), "-m", "pyserini_ance"]
        return shlex.join([*program, "train", str(self.recipe), "--output", str(self.folder), "--resume"])

    def create(self, recipe_yaml: str, overwrite: bool = False) -> None:
        """Make the directory of a new run, and acquire its trainer lock; `held` keeps it.

        Raises FileExistsError when the directory is not empty, unless `overwrite` clears a run; LockHeld when
        living processes work on that run. Processes of other hosts are observed for a while to see whether
        they are alive.
        """
        self.check_creatable(overwrite)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.trainer.acquire("preparing")
        if overwrite:
            self._clear()
        remove_leftovers(self.folder)
        write_whole(self.recipe, recipe_yaml)

    def check_creatable(self, overwrite: bool = False) -> None:
        """Raise what `create` raises before it writes."""
        if not self._has_content():
            return
        if not overwrite:
            raise FileExistsError(f"{self.folder} holds {self.describe()}. {self._cure()}")
        if not self.state.exists():
            raise FileExistsError(
                f"{self.folder} is not a run directory (no {self.state.name}); --overwrite does not clear it"
            )
        self.refresher.check_free()

    @property
    def can_resume(self) -> bool:
        """Whether there is a run that came far enough to be resumed."""
        return self.recipe.exists() and self.environment.exists()

    def _has_content(self) -> bool:
        """Whether there is more than lock files of processes that died before they held the lock."""
        return self.folder.exists() and any(
            path == self.state or self.state.name not in path.name for path in self.folder.iterdir()
        )

    def reopen(self) -> None:
        """Acquire the trainer lock of a stopped run, and remove what dead processes left; `held` keeps it.

        Raises FileNotFoundError without a run, RuntimeError when another version wrote it, LockHeld as
        `create` does.
        """
        if not self.state.exists():
            raise FileNotFoundError(
                f"{self.folder} holds no run to resume; start one without resume (--resume)"
            )
        where = self.read_state()["where"]
        if not self.recipe.exists():
            raise FileNotFoundError(
                f"{self.folder} holds a run without its {self.recipe.name}; start it again with overwrite "
                "(--overwrite)"
            )
        self._clean_up(self.trainer.acquire(where))
        self.error.unlink(missing_ok=True)

    def clear_claims(self, cache: Path) -> None:
        """Before a run is resumed: remove what its dead trainer and refresher left claimed, also in `cache`.

        A process of another host is observed for a while. Raises LockHeld when a living process trains.
        """
        for role in (self.trainer, self.refresher):
            try:
                previous = role.check_free()
            except LockHeld:
                if role is self.trainer:
                    raise
                continue  # a refresher that lives goes on
            if previous and previous["status"] == "running":
                self.clear_abandoned(previous, cache)

    def clear_abandoned(self, dead: dict[str, Any], cache: Path) -> None:
        """Remove what the process `dead` has claimed and not completed, in the run and in `cache`."""
        cached = sorted(path for path in cache.glob("*") if path.is_dir())
        for directory in (self.checkpoints, self.negatives, self.scratch, *cached):
            clear_abandoned(directory, dead)

    def held(self) -> AbstractContextManager[None]:
        """After `create` or `reopen`: hold the trainer lock with a heartbeat."""
        return self.trainer.held(self.read_state()["where"])

    def mark(self, status: Status, where: str, **values: Any) -> None:
        """Record what the run is doing, for everyone who opens the directory."""
        self.trainer.mark(status, where, **values)

    def read_state(self) -> dict:
        """The record of the trainer. Raises FileNotFoundError without a run."""
        state = self.trainer.read()
        if state is None:
            raise FileNotFoundError(f"{self.folder} holds no run (no {self.state.name})")
        return state

    def read_recipe(self) -> Recipe:
        """The recipe that the run was started with.

        Raises RuntimeError when another version wrote the run directory, ValueError as `load`.
        """
        return load_recipe(self.recipe).recipe

    def read_final_evaluation(self) -> FinalEvaluation:
        """That section of the recipe, whose other sections may name classes that are not here.

        Raises as `read_recipe`.
        """
        self.trainer.read()
        sections = read_yaml(self.recipe.read_bytes(), str(self.recipe))
        return read_settings(FinalEvaluation, sections["final_evaluation"], str(self.recipe))

    def describe(self) -> str:
        """One phrase about the directory's content: `a run that stopped at stage ance, step 100`."""
        state = LockFile(self.state).read()
        if state is None:
            return "other files"
        if state["status"] == "finished":
            return "a finished run"
        if state["status"] != "running":
            return f"a run that {state['status']} at {state['where']}"
        doing = {True: "is running", False: "died", None: f"is running, or died, on host {state['host']}"}[
            is_alive(state)
        ]
        return f"a run that {doing} at {state['where']}"

    def _cure(self) -> str:
        """What to do about a directory that is not empty, with the options, and in Python the arguments."""
        if not self.state.exists():
            return "Pass another output (--output)."
        if (LockFile(self.state).read() or {}).get("status") == "finished":
            return (
                "Replace it with overwrite (--overwrite), pass another output (--output), or repeat its "
                "final evaluation with resume (--resume)."
            )
        return (
            "Continue it with resume (--resume), replace it with overwrite (--overwrite), or pass another "
            "output (--output)."
        )

    def _clean_up(self, previous: dict | None) -> None:
        """Remove what dead processes left unfinished. The `previous` trainer is dead: its lock was acquired.

        For a trainer of another host only its silence shows that.
        """
        silent = (
            previous if previous and previous["status"] == "running" and is_alive(previous) is None else None
        )
        remove_leftovers(self.folder, silent)
        if silent:
            for directory in (self.checkpoints, self.negatives, self.scratch):
                clear_abandoned(directory, silent)

    def _clear(self) -> None:
        """Remove everything but the lock.

        The trainer lock is held, so that of two processes that overwrite a run neither clears the other's new
        run.
        """
        self.recipe.unlink(missing_ok=True)  # first: without it a half-cleared run cannot be resumed
        for path in self.folder.iterdir():
            if self.state.name in path.name:  # the lock, and other processes' attempts to acquire it
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
