"""What stages start from that was made before the run: checked, and copied into the run as checkpoints of its own."""

import logging
from dataclasses import dataclass

from pyserini_ance.encoders.checkpoint import continue_encoder
from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.experiment.origin import Origin, find_origin
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.recipe.start import Start
from pyserini_ance.runs.checkpoint import Checkpoint, Place, publish_checkpoint
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.files import read_json
from pyserini_ance.storage.publish import is_complete

log = logging.getLogger(__name__)


def describe_starts(recipe: Recipe) -> list[str]:
    """A line of each outside start: what it is, or, where it is not there yet, what makes it."""
    return [f"{_key_of(recipe, start)}: {_describe(start)}" for start in recipe.outside_starts.values()]


def _describe(start: Start) -> str:
    try:
        return find_origin(start).describe()
    except (ValueError, OSError, RuntimeError) as error:
        return f"not there yet: {error}"


@dataclass(frozen=True)
class Starts:
    """The outside starts of one run, by row. `origins` are those that still lie where the recipe says, `encoders` those to be copied."""

    run: RunDir
    names: list[str]
    origins: dict[str, Origin]
    encoders: dict[str, Encoder]

    @classmethod
    def read(cls, recipe: Recipe, run: RunDir, untrained: Encoder, resume: bool) -> "Starts":
        """Find and check all, before anything is written. With `resume`, one that the run has copied may be gone, but not changed.

        Raises RuntimeError naming the key for one that cannot be found, ValueError when it is not of the recipe's kind, or not what
        the run was begun with.
        """
        origins, encoders = {}, {}
        for name, start in recipe.outside_starts.items():
            key, copied = _key_of(recipe, start), resume and is_complete(run.checkpoint(name, 0))
            origin = _find(start, key, or_none=copied)
            if origin is None:
                continue
            if resume:
                _refuse_other_weights(run, name, origin, key)
            if not copied:
                encoders[name] = _open(recipe, run, origin, start, untrained, key)
            origins[name] = origin
        return cls(run, list(recipe.outside_starts), origins, encoders)

    def as_json(self) -> dict:
        return {name: origin.as_json() for name, origin in self.origins.items()}

    def publish(self) -> dict[str, tuple[str, str]]:
        """Copy those that the run does not hold yet; the hashes of all."""
        for name, encoder in self.encoders.items():
            publish_checkpoint(self.run, encoder, None, Place(name, 0))
        return {name: Checkpoint.open(self.run.checkpoint(name, 0), verify=name not in self.encoders).hashes for name in self.names}


def _find(start: Start, key: str, or_none: bool) -> Origin | None:
    try:
        return find_origin(start)
    except (ValueError, OSError, RuntimeError) as error:
        if not or_none:
            raise RuntimeError(f"{key}: {error}") from error
        log.info("%s cannot be read any more (%s); the run goes on with its own copy", key, error)
        return None


def _key_of(recipe: Recipe, start: Start) -> str:
    return next(f"stages.{name}.start" for name, stage in recipe.stages.items() if stage.start == start)


def _refuse_other_weights(run: RunDir, name: str, origin: Origin, key: str) -> None:
    begun = read_json(run.environment).get("starts", {}).get(name)
    if begun and begun["weights"] != origin.weights:
        raise ValueError(
            f"{key}: {origin.encoder} holds weights {origin.weights[:12]}, but {run.folder} was begun from {begun['weights'][:12]}. "
            f"Bring those back, or start again from the new ones with --overwrite."
        )


def _open(recipe: Recipe, run: RunDir, origin: Origin, start: Start, untrained: Encoder, key: str) -> Encoder:
    if origin.encoder.resolve().is_relative_to(run.folder.resolve()):
        raise ValueError(f"{key}: {origin.encoder} lies in {run.folder}, where this run is to be written; name another --output")
    try:
        encoder = continue_encoder(recipe.encoder, origin.encoder, start.changes)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error
    _refuse_other_shape(encoder, origin, untrained, key)
    return encoder


def _refuse_other_shape(encoder: Encoder, origin: Origin, untrained: Encoder, key: str) -> None:
    """The data is tokenised before training with the tokenizer of `encoder.model`, and all rows of the table share one."""
    found, expected = encoder.dimension, untrained.dimension
    if found != expected:
        raise ValueError(f"{key}: {origin.encoder} makes vectors of {found} numbers, encoder.model of {expected}; name one of its size")
    ours, others = encoder.tokenizer, untrained.tokenizer
    if ours.tokenizer.get_vocab() != others.tokenizer.get_vocab() or ours.specials != others.specials:
        model = untrained.family.model
        raise ValueError(f"{key}: {origin.encoder} has another tokenizer than encoder.model, {model}; set that to what it was trained from")
