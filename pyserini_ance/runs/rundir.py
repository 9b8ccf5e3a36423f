"""RunDir: the names of everything an experiment leaves, and the state that says whether it is whole."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Literal

from pyserini_ance.storage.files import write_json, write_whole
from pyserini_ance.storage.owner import lives, this_process

Status = Literal["running", "stopped", "failed", "finished"]
LAYOUT = 2


class RunDir:
    """Names only, and `state.json`; what is written under a name is the writer's business."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.state = folder / "state.json"
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

    def bm25_negatives(self, split: str) -> Path:
        """BM25's ranking of the training queries, which sources of negatives draw from."""
        return self.run_files / f"bm25.{split}.negatives.trec"

    def final_run(self, split: str) -> Path:
        return self.folder / f"run.{split}.trec"

    def qrels(self, split: str) -> Path:
        return self.folder / f"qrels.{split}.txt"

    def create(self, recipe_yaml: str, overwrite: bool = False) -> None:
        """Make the folder for a new run. Raises FileExistsError when it holds anything, unless `overwrite` clears a run."""
        if self.folder.exists() and any(self.folder.iterdir()):
            if not overwrite:
                raise FileExistsError(
                    f"{self.folder} holds {self.describe()}. Use --resume to go on with it, --overwrite to replace it, "
                    f"or another --output."
                )
            if not self.state.exists():
                raise FileExistsError(f"{self.folder} is not a run directory (no {self.state.name}); --overwrite refuses to clear it")
            self._refuse_living_owner(unknown_lives=True)
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.mark("running", "preparing")
        write_whole(self.recipe, recipe_yaml)

    def reopen(self) -> None:
        """Take up a run that stopped; it is ours from then on.

        Raises FileNotFoundError without one, RuntimeError when a living process works on it or another version wrote it.
        """
        if not self.state.exists():
            raise FileNotFoundError(f"{self.folder} holds no run to resume; leave out --resume to start one")
        self._refuse_living_owner(unknown_lives=False)
        state = self.read_state()
        if state["layout"] != LAYOUT:
            raise RuntimeError(f"{self.folder} was written with layout {state['layout']}; this version reads {LAYOUT}")
        if not self.recipe.exists():
            raise FileNotFoundError(f"{self.folder} holds a run without its {self.recipe.name}; use --overwrite to start it again")
        self.mark("running", state["where"])
        self.error.unlink(missing_ok=True)

    def mark(self, status: Status, where: str, **more) -> None:
        """Record what the run is doing, so that whoever opens the folder knows where it stands."""
        write_json(self.state, {"layout": LAYOUT, "status": status, "where": where, "time": time.time(), **this_process(), **more})

    def read_state(self) -> dict:
        return json.loads(self.state.read_text(encoding="utf-8"))

    def describe(self) -> str:
        """One phrase about what lies in the folder: `a run that stopped at stage ance, step 100`."""
        if not self.state.exists():
            return "other files"
        state = self.read_state()
        died = state["status"] == "running" and lives(state) is False
        return f"a run that {'died' if died else state['status'].replace('running', 'is running')} at {state['where']}"

    def _refuse_living_owner(self, unknown_lives: bool) -> None:
        """`unknown_lives` decides about a run of another host: a job may be resumed on another node, but not wiped out there."""
        state = self.read_state()
        living = lives(state)
        if state["status"] == "running" and (unknown_lives if living is None else living and state["pid"] != os.getpid()):
            raise RuntimeError(f"{self.folder} is in use by process {state['pid']} on {state['host']}; stop that run first")
