"""RunDir: the names in a run directory, its roles, and how a run begins and is continued."""

import os
import re
import shlex
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from pyserini_ance.recipe.components import similar_name
from pyserini_ance.recipe.evaluation_settings import FinalEvaluation
from pyserini_ance.recipe.load import load, read_settings
from pyserini_ance.recipe.models import Recipe, cache_folder
from pyserini_ance.recipe.yaml_text import read_yaml
from pyserini_ance.storage.files import read_json, remove, remove_leftovers, write_whole
from pyserini_ance.storage.publish import check_cache, is_complete
from pyserini_ance.storage.role import Role

LAYOUT = 9
RUNS = Path("runs")
RECIPE = "recipe.yaml"
TRAINING_RANKS_CUTOFF = 100  # of the ranks in training-queries.positive_ranks.npy
FILES_OF_SPLITS = ("run.*.trec", "run.*.txt", "qrels.*.txt", "topics.*.*")


def step_of(name: str) -> int:
    """The step in the name of a checkpoint, a generation or an evaluation without suffix: `ance-00000040`."""
    return int(name.rpartition("-")[2])


def complete_steps(folder: Path, stage: str) -> list[Path]:
    """The complete checkpoints or tables of a stage in a folder of a run, by step."""
    return [each for each in sorted(folder.glob(f"{stage}-????????")) if is_complete(each)]


def load_recipe(name: str | Path, *overrides: str) -> Recipe:
    """Load a recipe as `recipe.load` does, also that of a run directory.

    Raises RuntimeError when another version wrote the run directory.
    """
    if Path(name).name == RECIPE and Path(name).is_file():
        RunDir(Path(name).parent).trainer.read()  # one error, instead of one for each key of an old recipe
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
    for run in map(RunDir, path.parents):
        name = path.relative_to(run.folder).parts[0]
        names = {own.name for own in vars(run).values() if isinstance(own, Path) and own != run.folder}
        is_own = name in names or any(fnmatch(name, pattern) for pattern in FILES_OF_SPLITS)
        if is_own and run.state.exists() and run.recipe.exists():
            return run
    return None


class RunDir:
    """Names, and the roles of the trainer (`state.json`) and the refresher (`refresher.json`).

    The modules that write under a name define its content.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.state = folder / "state.json"
        self.trainer = Role(self.state, LAYOUT)
        self.refresher = Role(folder / "refresher.json", LAYOUT)
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
        self.adapter = folder / "adapter"  # in peft's form
        self.index = folder / "index"
        self.first_pass = folder / "first-pass"  # the encoder, of a recipe with `first_pass`
        self.run_files = folder / "runs"
        # Called with each record of the metrics as it is written, in this process.
        self.listeners: list[Callable[[dict[str, Any]], None]] = []

    @classmethod
    def find(cls, folder: Path) -> "RunDir":
        """The run in a folder, or that of an adaptation."""
        parts = (folder / part / RECIPE for part in ("run", "data"))  # `adapt` makes the run last
        return cls(folder / "run" if any(map(Path.is_file, parts)) else folder)

    def check(self, *needed: Path) -> None:
        """Raise FileNotFoundError if the folder, its recipe or one of its files `needed` does not exist."""
        absent = next((path for path in (self.recipe, *needed) if not path.exists()), None)
        missing = f" ({absent.name} is missing)" if absent else ""
        if not self.folder.is_dir():
            missing = ": a file" if self.folder.exists() else f": no such folder{similar_name(self.folder)}"
        if missing:
            cure = "Pass a directory written by `pyserini-ance train`, or by `adapt` to its end"
            raise FileNotFoundError(f"{self.folder} is not a run directory{missing}. {cure}")

    def checkpoint(self, stage: str, step: int) -> Path:
        """A published folder with `encoder/`.

        Training can resume from it when it also holds `training.safetensors` and `progress.json`.
        """
        return self.checkpoints / f"{stage}-{step:08d}"

    def generation(self, stage: str, step: int) -> Path:
        """The published tables that were mined with the checkpoint of that stage and step."""
        return self.negatives / f"{stage}-{step:08d}"

    def evaluation(self, stage: str, step: int) -> Path:
        return self.evaluations / f"{stage}-{step:08d}.json"

    def ranking(self, row: str, split: str) -> Path:
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
        """Make the directory of a new run; `overwrite` clears an earlier run. Vectors that were made for the
        new one stay.

        The caller holds the trainer's role. Raises FileExistsError when the directory holds anything else,
        OSError for what cannot be removed, LockHeld when a refresher works there.
        """
        self.check_creatable(overwrite)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.recipe.unlink(missing_ok=True)  # first: without it a half-cleared run cannot be resumed
        for path in self.folder.iterdir():
            if path != self.state and not self._may_stay(path, overwrite):
                remove(path)
                if path.exists():  # checkpoints of the earlier run would pass for those of this one
                    raise OSError(f"{path} could not be removed; stop the process that reads it")
        self.trainer.mark("running", "preparing")
        write_whole(self.recipe, recipe_yaml)

    def check_creatable(self, overwrite: bool = False) -> None:
        """Raise what `create` raises before it writes."""
        if not self.folder.exists() or all(map(self._may_stay, self.folder.iterdir())):
            return
        if not overwrite:
            cure = "Pass another output (--output)."
            if self.state.exists() and not self.trainer.is_held:
                cure = (
                    "Continue it, or repeat its final evaluation, with resume (--resume), replace it with "
                    "overwrite (--overwrite), or pass another output (--output)."
                )
            raise FileExistsError(f"{self.folder} holds {self.describe()}. {cure}")
        if not self.state.exists():
            raise FileExistsError(
                f"{self.folder} is not a run directory (no {self.state.name}); --overwrite does not clear it"
            )
        self.refresher.check_free()

    def _may_stay(self, path: Path, overwrite: bool = False) -> bool:
        """Whether a file is a role's lock, or was left by a process that was killed before it wrote its
        state; or holds vectors, each of which says what it is of."""
        is_lock = path.suffix == ".held" or path.name.startswith(".state.json.")
        return is_lock or (path == self.scratch and not overwrite)

    @property
    def can_resume(self) -> bool:
        """Whether there is a run that came far enough to be resumed."""
        return self.recipe.exists() and self.environment.exists()

    def reopen(self) -> None:
        """Record that a stopped run goes on, and remove what killed processes left."""
        self.trainer.mark("running", self.read_state()["where"])
        remove_leftovers(self.folder)
        self.error.unlink(missing_ok=True)

    def read_state(self) -> dict:
        """The record of the trainer. Raises FileNotFoundError without a run."""
        state = self.trainer.read()
        if state is None:
            raise FileNotFoundError(f"{self.folder} holds no run (no {self.state.name})")
        return state

    def read_recipe(self) -> Recipe:
        """The recipe that the run was started with, with this user's cache if its own cannot be used here.

        Raises RuntimeError when another version wrote the run directory, ValueError as `load`.
        """
        recipe = load_recipe(self.recipe)
        try:
            check_cache(recipe.cache)
        except OSError:  # another user's, or another machine's
            if not os.access(recipe.cache, os.R_OK | os.X_OK):
                return recipe.model_copy(update={"cache": cache_folder()})
        return recipe

    def read_measures(self) -> dict[str, Any]:
        """`measures.json`; its commands name the folder that the run is in now."""
        record: dict[str, Any] = read_json(self.measures)
        exported = record.get("export", {})
        old, here = f"^{re.escape(str(exported.get('folder', self.folder)))}/", f"{self.folder}/"
        for name in exported.keys() & {"command", "hybrid"}:
            lines = map(shlex.split, exported[name].splitlines())
            moved = [[re.sub(old, lambda _: here, word) for word in line] for line in lines]
            exported[name] = "\n".join(map(shlex.join, moved))
        return record

    def read_final_evaluation(self) -> FinalEvaluation:
        """That section of the recipe, whose other sections may name classes that are not here.

        Raises as `read_recipe`.
        """
        return read_settings(FinalEvaluation, self._sections()["final_evaluation"], str(self.recipe))

    def ignores_identical_ids(self) -> bool:
        """Whether the recipe's data leaves a query's own document out of rankings; raises as above."""
        return bool(self._sections()["data"].get("ignore_identical_ids"))

    def _sections(self) -> dict[str, Any]:
        self.trainer.read()
        return read_yaml(self.recipe.read_bytes(), str(self.recipe))

    def describe(self) -> str:
        """One phrase about the directory's content: `a run that stopped at stage ance, step 100`."""
        state = self.trainer.read(any_layout=True)
        if state is None:
            return "other files"
        status = state["status"]
        if status == "running":
            status = "is running" if self.trainer.is_held else "died"
        return "a finished run" if status == "finished" else f"a run that {status} at {state['where']}"
