"""RunDir: the names of everything an experiment leaves, and the state that says whether it is whole."""

import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from pyserini_ance.storage.beside import sweep
from pyserini_ance.storage.election import Election
from pyserini_ance.storage.files import write_whole
from pyserini_ance.storage.owner import lives
from pyserini_ance.storage.post import Post, Status
from pyserini_ance.storage.publish import clear_abandoned

LAYOUT = 2
RUNS = Path("runs")


def step_of(name: str) -> int:
    """Of the name of a checkpoint, a generation or an evaluation, without suffix: `ance-00000040`."""
    return int(name.rpartition("-")[2])


def run_folder(recipe_name: str) -> Path:
    """Where the run of a recipe lies unless --output says otherwise."""
    return RUNS / recipe_name.replace("/", "-")


class RunDir:
    """Names only, and who works here: the trainer in `state.json`, the refresher in `refresher.json`.

    What is written under a name is the writer's business.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.state = folder / "state.json"
        self.trainer = Post(self.state, LAYOUT)
        self.refresher = Post(folder / "refresher.json", LAYOUT)
        self.recipe = folder / "recipe.yaml"
        self.environment = folder / "environment.json"
        self.metrics = folder / "metrics.jsonl"
        self.decisions = folder / "decisions.jsonl"
        self.measures = folder / "measures.json"
        self.error = folder / "error.txt"
        self.checkpoints = folder / "checkpoints"
        self.negatives = folder / "negatives"
        self.evaluations = folder / "evaluations"
        self.orders = folder / "orders.json"
        self.replay = folder / "replay.jsonl"
        self.refresher_log = folder / "refresher.log"
        self.scratch = folder / "scratch"
        self.model = folder / "model"
        self.index = folder / "index"
        self.run_files = folder / "runs"

    def checkpoint(self, stage: str, step: int) -> Path:
        """A published folder: `encoder/`, and `training.safetensors` + `place.json` when training can resume from it."""
        return self.checkpoints / f"{stage}-{step:08d}"

    def generation(self, stage: str, step: int) -> Path:
        """The published tables that were mined with the checkpoint of that stage and step."""
        return self.negatives / f"{stage}-{step:08d}"

    def evaluation(self, stage: str, step: int) -> Path:
        """The dev measure of the checkpoint of that stage and step."""
        return self.evaluations / f"{stage}-{step:08d}.json"

    def ranking(self, row: str, split: str) -> Path:
        """The ranking of a row of the closing table."""
        return self.run_files / f"{row}.{split}.trec"

    def bm25_negatives(self, split: str) -> Path:
        """BM25's ranking of the training queries, which sources of negatives draw from."""
        return self.run_files / f"bm25.{split}.negatives.trec"

    def final_run(self, split: str) -> Path:
        return self.folder / f"run.{split}.trec"

    def qrels(self, split: str) -> Path:
        return self.folder / f"qrels.{split}.txt"

    def create(self, recipe_yaml: str, overwrite: bool = False) -> None:
        """Make the folder for a new run, and take the trainer's post in it; `held` keeps it.

        Raises FileExistsError when the folder holds anything, unless `overwrite` clears a run; Held when processes that
        live work on that run: those of other hosts are watched for a while to see whether they do.
        """
        if self._holds_something():
            if not overwrite:
                raise FileExistsError(
                    f"{self.folder} holds {self.describe()}. Use --resume to go on with it, --overwrite to replace it, "
                    f"or another --output."
                )
            if not self.state.exists():
                raise FileExistsError(f"{self.folder} is not a run directory (no {self.state.name}); --overwrite refuses to clear it")
            self.refresher.vacant()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.trainer.take("preparing")
        if overwrite:
            self._clear()
        sweep(self.folder)
        write_whole(self.recipe, recipe_yaml)

    def _holds_something(self) -> bool:
        """More than what processes have left that died on their way to the trainer's post: those had not begun."""
        return self.folder.exists() and any(path == self.state or self.state.name not in path.name for path in self.folder.iterdir())

    def reopen(self) -> None:
        """Take up a run that stopped, and the trainer's post in it; `held` keeps it.

        Raises FileNotFoundError without one, RuntimeError when another version wrote it, Held as `create` does.
        """
        if not self.state.exists():
            raise FileNotFoundError(f"{self.folder} holds no run to resume; leave out --resume to start one")
        where = self.read_state()["where"]
        if not self.recipe.exists():
            raise FileNotFoundError(f"{self.folder} holds a run without its {self.recipe.name}; use --overwrite to start it again")
        self._clean_up(self.trainer.take(where))
        self.error.unlink(missing_ok=True)

    def held(self) -> AbstractContextManager[None]:
        """After `create` or `reopen`: inside it, a heartbeat shows other hosts that this process lives."""
        return self.trainer.hold(self.read_state()["where"])

    def mark(self, status: Status, where: str, **more) -> None:
        """Record what the run is doing, so that whoever opens the folder knows where it stands."""
        self.trainer.mark(status, where, **more)

    def read_state(self) -> dict:
        state = self.trainer.read()
        if state is None:
            raise FileNotFoundError(f"{self.folder} holds no run (no {self.state.name})")
        return state

    def describe(self) -> str:
        """One phrase about what lies in the folder: `a run that stopped at stage ance, step 100`."""
        state = Election(self.state).read()
        if state is None:
            return "other files"
        if state["status"] != "running":
            return f"a run that {state['status']} at {state['where']}"
        doing = {True: "is running", False: "died", None: f"is running, or died, on host {state['host']}"}[lives(state)]
        return f"a run that {doing} at {state['where']}"

    def _clean_up(self, former: dict | None) -> None:
        """Remove what dead processes left half-done. That a trainer of another host is dead is known only by its silence."""
        silent = former if former and former["status"] == "running" and lives(former) is None else None
        sweep(self.folder, silent)
        if silent:
            for room in (self.checkpoints, self.negatives):
                clear_abandoned(room, silent)

    def _clear(self) -> None:
        """Under the trainer's post, so that of two that overwrite a run neither clears the other's new one."""
        self.recipe.unlink(missing_ok=True)  # first: without it a half-cleared run cannot be resumed
        for path in self.folder.iterdir():
            if self.state.name in path.name:  # the post, and another process's attempt to take it
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
