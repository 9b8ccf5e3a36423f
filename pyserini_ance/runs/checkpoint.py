"""Checkpoints: the encoder of a step, and for resuming optimizer moments and progress; and retention: which
checkpoints, vectors, tables and dev scores of a run stay.

A folder that another process reads stays too; the last process that reads it removes it.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.distributed.tensor import DTensor, distribute_tensor

from pyserini_ance.data.collection import SIDES
from pyserini_ance.encoders.adapters import adapters_of, checkpoint_hashes, tower_hash
from pyserini_ance.encoders.config import TOWERS, read_side_file, tower_folder
from pyserini_ance.encoders.dpr import weights_sha256
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.load_save import save_encoder
from pyserini_ance.negatives.snapshot import TEACHER_VECTORS
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir, complete_steps, step_of
from pyserini_ance.storage import publish
from pyserini_ance.storage.files import read_json, remove_leftovers, sha256_json, write_json

ENCODER = "encoder"
TRAINING, PROGRESS = "training.safetensors", "progress.json"
SCALE = "loss_scale"  # in the training file of fp16
PARTS_OF_8_BITS = "codes", "scale", "qmap"  # of a moment of torchao's


@dataclass(frozen=True)
class TrainingProgress:
    """The position of training: before step `step` of `stage`, with the best dev evaluation so far.

    best_step, best_value: of all evaluations; step 0 is the start.
    """

    stage: str
    step: int
    best_step: int | None = None
    best_value: float | None = None

    def after_evaluation(self, evaluated_step: int, value: float) -> "TrainingProgress":
        """The progress after the checkpoint of `evaluated_step` was measured."""
        if self.best_value is None or value > self.best_value:
            return replace(self, best_step=evaluated_step, best_value=value)
        return self


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint: its folder and its towers' weights hashes, which are equal for tied towers."""

    folder: Path
    query_weights: str
    document_weights: str

    @property
    def weights(self) -> str:
        """The hash of both towers. Tied towers and a pair of equal towers are the same encoder."""
        if self.query_weights == self.document_weights:
            return self.query_weights
        return sha256_json([self.query_weights, self.document_weights])

    @property
    def hashes(self) -> tuple[str, str]:
        return self.query_weights, self.document_weights

    @property
    def encoder(self) -> Path:
        return self.folder / ENCODER

    @classmethod
    def open(cls, folder: Path, verify: bool = True) -> "Checkpoint":
        """Read a published checkpoint.

        Raises FileNotFoundError when it is not complete, RuntimeError when a file of the encoder differs from
        what was written; `verify` compares hashes, not only sizes.
        """
        return cls(folder, *checkpoint_hashes(folder / ENCODER, verify))


def weights_of(encoder: Path) -> str:
    """The hash that a checkpoint with the same weights has.

    `encoder` is a folder that `save_encoder` wrote, or that a run exported.
    """
    files, adapters = _files_in(encoder), adapters_of(encoder)
    return Checkpoint(encoder, *(tower_hash(files, side, adapters) for side in SIDES)).weights


def document_weights_of(encoder: Path) -> str | None:
    """The hash of the document tower's weights, as `Checkpoint.document_weights`.

    `encoder` is a folder that `save_encoder` wrote, that a run exported, or of one tower of a pair; None if
    the document tower is not beside the query tower.
    """
    is_query = read_side_file(encoder).get("tower") == "query"
    folder = encoder.parent / TOWERS["document"] if is_query else tower_folder(encoder, "document")
    files = _files_in(folder)
    return tower_hash(files, "document", None if is_query else adapters_of(encoder)) if files else None


def _files_in(folder: Path) -> dict[str, str]:
    """The hashes of the files of weights in an encoder's folder, by their paths."""
    return {str(path.relative_to(folder)): weights_sha256(path) for path in folder.rglob("*.safetensors")}


def publish_checkpoint(
    run: RunDir,
    encoder: Encoder,
    moments: Mapping[str, torch.Tensor] | None,
    progress: TrainingProgress,
    scaler: torch.amp.GradScaler | None = None,
) -> Checkpoint:
    """Write the checkpoint at `progress`, or open it when an earlier attempt has completed it.

    Training can resume from a checkpoint with an optimizer's `moments`, and the `scaler` of fp16.
    """
    folder = run.checkpoint(progress.stage, progress.step)
    if is_new := not publish.is_complete(folder):
        with publish.publishing(folder, {"stage": progress.stage, "step": progress.step}) as temporary:
            (temporary / ENCODER).mkdir()
            save_encoder(encoder, temporary / ENCODER)
            if moments is not None:
                training = {name: value.cpu().contiguous() for name, value in moments.items()}
                if scaler is not None and scaler.is_enabled():
                    state = scaler.state_dict()
                    scale = state["scale"], state["_growth_tracker"]  # number of steps since it changed
                    training[SCALE] = torch.tensor(scale, dtype=torch.float64)
                save_file(training, temporary / TRAINING)
                write_json(temporary / PROGRESS, asdict(progress))
    return Checkpoint.open(folder, verify=not is_new)


def moments_of(optimizer: torch.optim.Optimizer, keeps: bool = True) -> dict[str, torch.Tensor]:
    """The optimizer's state by name, empty before the first step. Of weights in parts all processes call it,
    and it is whole, on the CPU, where `keeps`."""
    moments: dict[str, torch.Tensor] = {}
    for i, parameter in enumerate(_parameters(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            whole = value.full_tensor().cpu() if isinstance(value, DTensor) else value
            if keeps and hasattr(whole, "codes"):  # of 8 bits
                moments |= {f"{i}.{name}.{part}": getattr(whole, part) for part in PARTS_OF_8_BITS}
            elif keeps:
                moments[f"{i}.{name}"] = whole
    return moments


def newest_progress(run: RunDir, stage: str) -> TrainingProgress | None:
    """The progress at the last complete checkpoint of `stage` that training can resume from."""
    complete = [each for each in complete_steps(run.checkpoints, stage) if (each / PROGRESS).exists()]
    return TrainingProgress(**read_json(complete[-1] / PROGRESS)) if complete else None


def restore_moments(
    checkpoint: Checkpoint, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler | None = None
) -> None:
    """Load a checkpoint's optimizer state into `optimizer`, on the devices of its parameters, and the scale
    of fp16, if it has one, into `scaler`."""
    publish.read_manifest(checkpoint.folder, within=TRAINING)  # `open` looks at the encoder alone
    saved = load_file(checkpoint.folder / TRAINING)
    if scaler is not None and SCALE in saved:
        scale, growth = saved[SCALE].tolist()
        scaler.load_state_dict({**scaler.state_dict(), "scale": scale, "_growth_tracker": int(growth)})
    for index, parameter in enumerate(_parameters(optimizer)):
        optimizer.state[parameter] = state = {}
        for name in ("step", "exp_avg", "exp_avg_sq"):
            key = f"{index}.{name}"
            if key in saved:
                state[name] = _placed(saved[key], parameter)
            elif f"{key}.codes" in saved:
                state[name] = _of_8_bits(saved, key, parameter)


def drop_moments(run: RunDir, recipe: Recipe, finished: Collection[str]) -> None:
    """Keep only the weights of finished stages' checkpoints, but for the moments that a stage to come goes on
    with: they are twice the size of the weights."""
    to_come = [name for name, stage in recipe.stages.items() if name not in finished and stage.keep_optimizer]
    for name in {*finished}.difference(map(recipe.start_of, to_come)):
        for folder in complete_steps(run.checkpoints, name):
            publish.remove_parts(folder, (TRAINING, PROGRESS))


def _placed(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A moment where its parameter is, and in such parts."""
    if isinstance(parameter, DTensor) and value.ndim:
        where = parameter.device_mesh, parameter.placements
        return distribute_tensor(value.to(parameter.device), *where, src_data_rank=None)
    return value.to(parameter.device)


def _of_8_bits(saved: Mapping[str, torch.Tensor], key: str, parameter: torch.nn.Parameter) -> torch.Tensor:
    from torchao.optim.subclass_8bit import OptimState8bit

    parts = {part: saved[f"{key}.{part}"].to(parameter.device) for part in PARTS_OF_8_BITS}
    return OptimState8bit(**parts, signed=key.endswith("exp_avg"), dtype=parameter.dtype)


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def prune_stage(
    run: RunDir, stage: str, recipe: Recipe, checkpoints: Collection[int], vectors: Collection[int]
) -> None:
    """Remove checkpoints and vectors of `stage` that are neither needed, nor read, nor kept by the recipe.

    `checkpoints` and `vectors` are the steps whose checkpoints and vectors training still needs. Those of an
    interruption are not kept.
    """
    complete = complete_steps(run.checkpoints, stage)
    is_due = recipe.stages[stage].checkpoint_is_due
    due = [folder for folder in complete if not (step := step_of(folder.name)) or is_due(step)]
    needed = {run.checkpoint(stage, step) for step in checkpoints} | set(due[-recipe.save_total_limit :])
    read = {run.checkpoint(stage, step) for step in vectors}
    in_use = {Checkpoint.open(f, verify=False).document_weights[:16] for f in complete if f in read}
    if vectors:  # a teacher's vectors serve all refreshes
        in_use.add(TEACHER_VECTORS)
    unneeded = [folder for folder in complete if folder not in needed]
    unneeded += [f for f in sorted(run.scratch.glob("[!.]*")) if f.name.partition("-")[0] not in in_use]
    for folder in unneeded:
        publish.remove_unless_leased(folder)


def clean_up_finished(run: RunDir, recipe: Recipe) -> None:
    """Remove what a finished run needs no more: all vectors, checkpoints that the recipe does not keep,
    products that were never adopted, and what dead processes left unfinished. The last process that works on
    the run does it; if the run has not finished, nothing happens."""
    if run.read_state()["status"] != "finished":
        return
    log = RunLog(run, writes=False)
    for ended in log.decisions("stage_end"):
        name = ended["stage"]
        adopted = {record["checkpoint_step"] for record in log.decisions("adopt", name)}
        prune_stage(run, name, recipe, {step_of(ended["result"])}, set())
        for folder in complete_steps(run.negatives, name):
            if step_of(folder.name) not in adopted:
                publish.remove_unless_leased(folder)
        keep = {record["checkpoint_step"] for record in log.decisions("evaluate", name)}
        for path in sorted(run.evaluations.glob(f"{name}-????????.json")):
            if step_of(path.stem) not in keep:
                path.unlink(missing_ok=True)
    remove_leftovers(run.folder)
