"""The dev measure of a checkpoint, as a small file that is there whole or not at all."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from pyserini_ance.storage.files import read_json, write_json


def publish_evaluation(path: Path, values: Mapping[str, float], weights: str, seconds: dict[str, float]) -> None:
    """`values` by split: the value is their mean, and where there are several, they stand beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    splits = {"splits": dict(values)} if len(values) > 1 else {}
    write_json(path, {"value": fmean(values.values()), **splits, "weights": weights, "seconds": seconds})


def open_evaluation(path: Path, weights: str) -> dict:
    """`value`, perhaps `splits`, and `seconds`. Raises RuntimeError when it was measured with other weights."""
    measured = read_json(path)
    if measured["weights"] != weights:
        raise RuntimeError(f"{path} was measured with weights {measured['weights'][:12]}, expected {weights[:12]}; remove it")
    return measured
