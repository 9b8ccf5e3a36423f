"""Weight averaging: the result of a stage as the weighted mean of several checkpoints' weights."""

from collections.abc import Sequence

import torch

from pyserini_ance.encoders.encoder import Encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.runs.checkpoint import Checkpoint


def mean_encoder(parts: Sequence[tuple[Checkpoint, float]]) -> Encoder:
    """The encoder of the last of `parts` (checkpoint, share), with the weighted mean of all parts' weights.

    Integers, such as position ids, stay those of the last part. Weights that are equal in all parts, such as
    those of a frozen tower, stay bitwise the same. Raises ValueError for encoders of different shapes.
    """
    last = parts[-1][0]
    encoder = load_encoder(last.encoder)
    weights = encoder.towers.state_dict()
    # As differences from the last part, in float64: equal weights then add exactly nothing.
    totals = {
        name: torch.zeros_like(w, dtype=torch.float64) for name, w in weights.items() if w.is_floating_point()
    }
    for checkpoint, share in parts[:-1]:
        other = load_encoder(checkpoint.encoder)
        shapes, others = (
            {n: tuple(w.shape) for n, w in e.towers.state_dict().items()} for e in (encoder, other)
        )
        names = f"average: {checkpoint.folder.name} cannot be averaged with {last.folder.name}"
        if different := sorted(n for n in shapes.keys() | others.keys() if shapes.get(n) != others.get(n)):
            first = different[0]
            raise ValueError(
                f"{names}: {len(different)} weights have other shapes, first {first}: "
                f"{others.get(first, 'missing')} and {shapes.get(first, 'missing')}. Remove `average`, or "
                "start from weights of the same model"
            )
        # Tied towers may be averaged into a pair, as their weights are both towers', but no pair into them.
        if encoder.towers.tied and not other.towers.tied:
            raise ValueError(f"{names}: it has two towers, the other has one. Remove `average`")
        for name, weight in other.towers.state_dict().items():
            if name in totals:
                totals[name] += share * (weight.double() - weights[name].double())
    mean = {name: (weights[name].double() + total).to(weights[name].dtype) for name, total in totals.items()}
    encoder.towers.load_state_dict({**weights, **mean})
    return encoder
