"""Weight averaging: the result of a stage as the weighted mean of several checkpoints' weights."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.recipe.optimization import Average
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, publish_checkpoint
from pyserini_ance.runs.run_log import RunLog
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import is_complete

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """A checkpoint and its share of the mean."""

    checkpoint: Checkpoint
    share: float

    def as_json(self) -> dict[str, str | float]:
        return {
            "checkpoint": self.checkpoint.folder.name,
            "weights": self.checkpoint.weights,
            "share": self.share,
        }


def parts_of(average: Average, start: Checkpoint, trained: Sequence[Checkpoint]) -> list[Part]:
    """The start with its share, if any, then the `trained` checkpoints with equal shares of the rest."""
    share = average.start or 0.0
    parts = [Part(start, share)] if share else []
    return parts + [Part(checkpoint, (1 - share) / len(trained)) for checkpoint in trained]


def publish_average(run: RunDir, stage: str, step: int, parts: Sequence[Part]) -> Checkpoint:
    """Publish the mean of `parts` as the checkpoint of `step`, or open it if an earlier attempt completed it.

    Its manifest lists the parts, with the hashes of their weights.
    """
    folder = run.checkpoint(stage, step)
    if is_complete(folder):
        return Checkpoint.open(folder)
    encoder = mean_encoder(parts)
    made_from = {"average_of": [part.as_json() for part in parts]}
    return publish_checkpoint(run, encoder, None, TrainingProgress(stage, step), made_from)


def mean_encoder(parts: Sequence[Part]) -> Encoder:
    """The encoder of the last part, with the weighted mean of all parts' weights.

    Integers, such as position ids, stay those of the last part. Weights that are equal in all parts, such as
    those of a frozen tower, stay bitwise the same. Raises ValueError for encoders of different shapes.
    """
    last = parts[-1].checkpoint
    encoder = load_encoder(last.encoder)
    weights = encoder.towers.state_dict()
    # As differences from the last part, in float64: equal weights then add exactly nothing.
    totals = {
        name: torch.zeros_like(w, dtype=torch.float64) for name, w in weights.items() if w.is_floating_point()
    }
    for part in parts[:-1]:
        other = load_encoder(part.checkpoint.encoder)
        _check_alike(encoder, other, last, part.checkpoint)
        for name, weight in other.towers.state_dict().items():
            if name in totals:
                totals[name] += part.share * (weight.double() - weights[name].double())
    mean = {name: (weights[name].double() + total).to(weights[name].dtype) for name, total in totals.items()}
    encoder.towers.load_state_dict({**weights, **mean})
    return encoder


def _check_alike(encoder: Encoder, other: Encoder, folder: Checkpoint, other_folder: Checkpoint) -> None:
    """Tied towers may be averaged into a pair of towers, as their weights are both towers', but no pair into
    tied ones."""
    shapes, others = ({n: tuple(w.shape) for n, w in e.towers.state_dict().items()} for e in (encoder, other))
    names = f"average: {other_folder.folder.name} cannot be averaged with {folder.folder.name}"
    if different := sorted(n for n in shapes.keys() | others.keys() if shapes.get(n) != others.get(n)):
        first = different[0]
        raise ValueError(
            f"{names}: {len(different)} weights have other shapes, first {first}: "
            f"{others.get(first, 'missing')} and {shapes.get(first, 'missing')}. Remove `average`, or start "
            "from weights of the same model"
        )
    if encoder.towers.tied and not other.towers.tied:
        raise ValueError(f"{names}: it has two towers, the other has one. Remove `average`")


def average_stage(
    run: RunDir,
    run_log: RunLog,
    world: World,
    progress: TrainingProgress,
    step: int,
    parts: Sequence[Part],
    dev_score: Callable[[int, str], float] | None,
) -> bool:
    """Publish the mean of `parts` as the checkpoint of `step` and record it; return whether it is the result.

    With `dev_score`, which measures the checkpoint of a step with these weights, it is the result if no
    checkpoint of `progress` is better. All processes make the call; a resumed run repeats it, with the same
    weights.
    """
    start = time.perf_counter()
    folder = run.checkpoint(progress.stage, step)
    hashes = world.on_main(lambda: publish_average(run, progress.stage, step, parts).hashes)
    made, where = Checkpoint(folder, *hashes), {"stage": progress.stage, "step": progress.step}
    about: dict[str, Any] = {"of": [part.as_json() for part in parts]}
    is_result, verdict = True, "it is the result"
    if dev_score is not None:
        value, best = dev_score(step, made.weights), progress.best_value
        assert best is not None, "the last checkpoint is always evaluated"
        is_result = value >= best
        about |= {"value": value, "best_step": progress.best_step, "best_value": best}
        verdict = f"dev {value:.4f}; the best checkpoint is that of step {progress.best_step} with {best:.4f}"
    run_log.decide("average", **where, weights=made.weights, **about, is_result=is_result)
    if dev_score is not None and is_result:
        run_log.decide("best", **where, checkpoint_step=step, value=about["value"])
    seconds = round(time.perf_counter() - start, 3)
    run_log.metric("average", **where, seconds=seconds)
    names = ", ".join(f"{part.share:.3g} of {part.checkpoint.folder.name}" for part in parts)
    log.info("stage %s: average of %s; %s; %.1f s", progress.stage, names, verdict, seconds)
    return is_result
