"""Checkpoints: the encoder of a step, and, for resuming, the optimiser's moments and the place in the schedule."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.checkpoint import TOWERS, save_encoder
from pyserini_ance.encoders.dpr import weights_sha256
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json, sha256_json, write_json
from pyserini_ance.storage.publish import is_complete, publishing, read_manifest

ENCODER = "encoder"
TRAINING, PLACE = "training.safetensors", "place.json"


@dataclass(frozen=True)
class Place:
    """Where training stands before step `step` of `stage`: the best evaluation so far, and how many came since without a new best."""

    stage: str
    step: int
    best_step: int | None = None
    best_value: float | None = None
    since_best: int = 0

    def after_evaluation(self, of_step: int, value: float) -> "Place":
        if self.best_value is None or value > self.best_value:
            return replace(self, best_step=of_step, best_value=value, since_best=0)
        return replace(self, since_best=self.since_best + 1)


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint: its folder and the hashes of its towers' weights, equal ones where the towers are tied."""

    folder: Path
    query_weights: str
    document_weights: str

    @property
    def weights(self) -> str:
        """The hash of both towers. Tied towers and a pair of equal ones are the same encoder."""
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
        """Raises FileNotFoundError or RuntimeError when it is not complete and, with `verify`, as it was written."""
        parts = {name: part["sha256"] for name, part in read_manifest(folder, verify)["parts"].items()}
        return cls(folder, *(_tower_hash(parts, side) for side in TOWERS))


def weights_of(encoder: Path) -> str:
    """The hash that a checkpoint with the same weights has; `encoder` is a folder that `save_encoder` wrote, or that a run exported."""
    parts = {f"{ENCODER}/{path.relative_to(encoder)}": weights_sha256(path) for path in encoder.rglob("*.safetensors")}
    return Checkpoint(encoder, *(_tower_hash(parts, side) for side in TOWERS)).weights


def _tower_hash(parts: dict[str, str], side: Side) -> str:
    """Of all weight files in a tower's folder. Both towers are in the encoder's own where they are tied."""
    for folder in (f"{ENCODER}/{TOWERS[side]}", ENCODER):
        hashes = {Path(name).name: sha for name, sha in parts.items() if Path(name).parent == Path(folder) and name.endswith(".safetensors")}
        if hashes:
            return next(iter(hashes.values())) if len(hashes) == 1 else sha256_json(hashes)
    raise RuntimeError(f"the manifest of a checkpoint lists no weights of its {side} tower")


def publish_checkpoint(run: RunDir, encoder: Encoder, optimizer: torch.optim.Optimizer | None, place: Place) -> Checkpoint:
    """Write the checkpoint of `place`, or open it when an earlier attempt has completed it."""
    folder = run.checkpoint(place.stage, place.step)
    if written := not is_complete(folder):
        with publishing(folder, {"stage": place.stage, "step": place.step}) as claimed:
            (claimed / ENCODER).mkdir()
            save_encoder(encoder, claimed / ENCODER)
            if optimizer is not None:
                save_file(_moments(optimizer), claimed / TRAINING)
                write_json(claimed / PLACE, asdict(place))
    return Checkpoint.open(folder, verify=not written)


def newest_place(run: RunDir, stage: str) -> Place | None:
    """The last step of `stage` from which training can resume."""
    folders = sorted(run.checkpoints.glob(f"{stage}-????????")) if run.checkpoints.exists() else []
    complete = [f for f in folders if is_complete(f) and (f / PLACE).exists()]
    return Place(**read_json(complete[-1] / PLACE)) if complete else None


def restore_moments(checkpoint: Checkpoint, optimizer: torch.optim.Optimizer) -> None:
    saved = load_file(checkpoint.folder / TRAINING)
    for index, parameter in enumerate(_parameters(optimizer)):
        state = {name: saved[f"{index}.{name}"] for name in ("step", "exp_avg", "exp_avg_sq") if f"{index}.{name}" in saved}
        optimizer.state[parameter] = {name: value.to(parameter.device) for name, value in state.items()}


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _moments(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Flat names `<position of the parameter>.<moment>`; empty before the first step."""
    states = {i: optimizer.state.get(p, {}) for i, p in enumerate(_parameters(optimizer))}
    return {f"{i}.{name}": value.cpu().contiguous() for i, state in states.items() for name, value in state.items()}
