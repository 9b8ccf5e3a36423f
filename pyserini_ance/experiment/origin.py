"""Origins: encoders that were made before a run, found where its recipe says and verified."""

from dataclasses import dataclass
from pathlib import Path

from pyserini_ance.encoders.checkpoint import read_side_file
from pyserini_ance.recipe.find import shipped
from pyserini_ance.recipe.load import load
from pyserini_ance.recipe.parts import did_you_mean
from pyserini_ance.recipe.start import Start
from pyserini_ance.runs.checkpoint import ENCODER, Checkpoint, weights_of
from pyserini_ance.runs.log import RunLog
from pyserini_ance.runs.rundir import run_folder
from pyserini_ance.runs.variant import run_behind
from pyserini_ance.storage.publish import is_complete


@dataclass(frozen=True)
class Origin:
    """An encoder that was made before: where it lies, the hash of its weights, and the stage that it is the result of."""

    encoder: Path
    weights: str
    stage: str | None = None

    def describe(self) -> str:
        return f"{f'the result of stage {self.stage}, ' if self.stage else ''}{self.encoder}, weights {self.weights[:12]}"

    def as_json(self) -> dict:
        return {"encoder": str(self.encoder), "stage": self.stage, "weights": self.weights}


def find_origin(start: Start) -> Origin:
    """Raises FileNotFoundError when nothing lies there, with the command that makes it, RuntimeError when it is not finished or damaged."""
    return _of_folder(start.folder) if start.folder else _of_run(start)


def _of_folder(folder: Path) -> Origin:
    """`RUN/model`, or the encoder of a checkpoint, which is verified by the checkpoint's manifest."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}; expected RUN/model, or the encoder folder of a checkpoint")
    read_side_file(folder)
    if folder.name == ENCODER and is_complete(folder.parent):
        return Origin(folder, Checkpoint.open(folder.parent).weights)
    return Origin(folder, weights_of(folder))


def _of_run(start: Start) -> Origin:
    """The result of a stage, verified by its manifest and by what the run has decided."""
    run, command = run_behind(start), _command(start)
    if not (run.state.exists() and run.recipe.exists()):
        raise FileNotFoundError(f"{run.folder} holds no run; make it with: {command}")
    stages = list(load(run.recipe).recipe.stages)
    stage = start.stage or stages[-1]
    if stage not in stages:
        raise FileNotFoundError(f"{run.folder} has no stage {stage!r}{did_you_mean(stage, stages)}; stages: {', '.join(stages)}")
    ended = [record for record in RunLog(run, writes=False).decisions("stage_end") if record["stage"] == stage]
    if not ended:
        raise RuntimeError(
            f"{run.folder} holds {run.describe()}: stage {stage} has not ended. Go on with it: "
            f"python -m pyserini_ance.train {run.recipe} --output {run.folder} --resume"
        )
    result = Checkpoint.open(run.checkpoints / ended[-1]["result"])
    if result.weights != ended[-1]["weights"]:
        raise RuntimeError(f"{result.folder} holds weights {result.weights[:12]}, but {run.decisions} says {ended[-1]['weights'][:12]}")
    return Origin(result.encoder, result.weights, stage)


def _command(start: Start) -> str:
    """That makes the run."""
    recipe = start.recipe or next((name for name in shipped() if run_folder(name) == start.run), None)
    return f"python -m pyserini_ance.train {recipe or f'RECIPE --output {start.run}'}"
