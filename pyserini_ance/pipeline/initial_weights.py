"""Initial weights from outside a run: find and check them, and copy them into the run as checkpoints of its
own."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from pyserini_ance.encoders.config import SIDE_FILE
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.load_save import continue_encoder
from pyserini_ance.recipe.components import did_you_mean
from pyserini_ance.recipe.init_from import InitFrom
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs import checkpoint
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress
from pyserini_ance.runs.provenance import source_run
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import is_complete

INITIAL = TrainingProgress("initial", 0)  # of the untrained encoder's checkpoint


@dataclass(frozen=True)
class WeightsOrigin:
    """An existing encoder's folder, the stage whose result it is, or None, and the hash of its weights."""

    encoder: str
    stage: str | None
    weights: str


def find_weights(init_from: InitFrom) -> WeightsOrigin:
    """The encoder that `init_from` names, verified by its manifest and the run's decisions.

    It is a saved encoder (`RUN/model`, or that of a checkpoint), or the result of a run's stage. Raises
    FileNotFoundError if it does not exist, with the command that makes it; RuntimeError if it is unfinished
    or damaged.
    """
    folder = init_from.folder
    if folder and (folder / SIDE_FILE).exists():
        if init_from.stage:
            raise ValueError(f"{folder} is a saved encoder, which has no stages; remove `stage`")
        if folder.name == checkpoint.ENCODER and is_complete(folder.parent):
            return WeightsOrigin(str(folder), None, Checkpoint.open(folder.parent).weights)
        return WeightsOrigin(str(folder), None, checkpoint.weights_of(folder))
    run = source_run(init_from)
    if not (run.state.exists() and run.recipe.exists()):
        recipe = init_from.recipe or f"RECIPE --output {quote(str(folder))}"
        no_encoder = "" if init_from.recipe else " and no saved encoder"
        raise FileNotFoundError(
            f"{run.folder} holds no run{no_encoder}; make it with: pyserini-ance train {recipe}"
        )
    stages = list(run.read_recipe().stages)
    stage = init_from.stage or stages[-1]
    if stage not in stages:
        raise FileNotFoundError(
            f"{run.folder} has no stage {stage!r}{did_you_mean(stage, stages)}; stages: {', '.join(stages)}"
        )
    ended = RunLog(run, writes=False).decisions("stage_end", stage)
    if not ended:
        cure = f"Continue it with: {run.resume_command()}"
        raise RuntimeError(f"{run.folder} holds {run.describe()}: stage {stage} has not ended. {cure}")
    result = Checkpoint.open(run.checkpoints / ended[-1]["result"])
    if result.weights != ended[-1]["weights"]:
        raise RuntimeError(f"{result.folder} does not hold the weights that {run.decisions} recorded")
    return WeightsOrigin(str(result.encoder), stage, result.weights)


def describe_initial_weights(recipe: Recipe) -> list[str]:
    """One line per external initial encoder: what it is, or, if it does not exist yet, the command that makes
    it."""
    lines = []
    for external in recipe.external_starts.values():
        try:
            found = find_weights(external)
            stage = f"the result of stage {found.stage}, " if found.stage else ""
            described = f"{stage}{found.encoder}, weights {found.weights[:12]}"
        except (ValueError, OSError, RuntimeError) as error:
            described = f"missing: {error}"
        lines.append(f"{key_of(recipe, external)}: {described}")
    return lines


def find_origins(recipe: Recipe, run: RunDir, resume: bool) -> dict[str, dict[str, Any]]:
    """The fields of each WeightsOrigin by row of the results table; a run to `resume` has its own copies.

    Raises RuntimeError with the recipe's key if an encoder cannot be found.
    """
    origins = {}
    for name, init_from in recipe.external_starts.items():
        if not (resume and is_complete(run.checkpoint(name, 0))):
            try:
                origins[name] = asdict(find_weights(init_from))
            except (ValueError, OSError, RuntimeError) as error:
                raise RuntimeError(f"{key_of(recipe, init_from)}: {error}") from error
    return origins


def publish_initial_weights(
    recipe: Recipe, run: RunDir, encoders: Mapping[str, Encoder]
) -> dict[str, tuple[str, str]]:
    """Copy the `encoders` that the run does not hold yet; returns the hashes of the towers of all rows."""
    for name, encoder in encoders.items():
        checkpoint.publish_checkpoint(run, encoder, None, TrainingProgress(name, 0))
    return {
        name: Checkpoint.open(run.checkpoint(name, 0), verify=name not in encoders).hashes
        for name in recipe.external_starts
    }


def starting_checkpoint(
    recipe: Recipe, name: str, initial: Mapping[str, Checkpoint], results: Mapping[str, Checkpoint]
) -> Checkpoint:
    """The checkpoint that stage `name` starts from: one of `initial`, by row of the results table, or one of
    `results`, which are those of the stages before it."""
    if own := recipe.start_of(name):
        return results[own]
    init_from, external = recipe.stages[name].init_from, recipe.external_starts
    return initial[next((row for row, weights in external.items() if weights == init_from), INITIAL.stage)]


def key_of(recipe: Recipe, init_from: InitFrom) -> str:
    """The recipe's key of initial weights: that of the first stage that has them."""
    first = next(name for name, stage in recipe.stages.items() if stage.init_from == init_from)
    return f"stages.{first}.init_from"


def open_origin(recipe: Recipe, run: RunDir, name: str, folder: Path, untrained: Encoder) -> Encoder:
    """The encoder in `folder`, that row `name` of the results table starts from.

    Raises ValueError if it has another dimension or tokenizer than `encoder.model`: the data is tokenized
    before training with the tokenizer of `encoder.model`, and all rows of the results table share one
    dimension.
    """
    init_from = recipe.external_starts[name]
    key = key_of(recipe, init_from)
    if folder.resolve().is_relative_to(run.folder.resolve()):
        cure = "pass another --output"
        raise ValueError(f"{key}: {folder} is inside {run.folder}, the directory of this run; {cure}")
    try:
        encoder = continue_encoder(recipe.encoder, folder, init_from.allow_changes)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error
    found, expected = (
        (one.dimension, one.tokenizer.specials, [t.get_vocab() for t in one.tokenizer.tokenizers.values()])
        for one in (encoder, untrained)
    )
    if found != expected:
        raise ValueError(
            f"{key}: {folder} has another tokenizer or dimension ({found[0]}) than encoder.model, "
            f"{untrained.config.model} ({expected[0]}); set that to the model that it was trained from"
        )
    return encoder
