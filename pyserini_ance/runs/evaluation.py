"""The dev measure of a checkpoint, as a small file that is there whole or not at all."""

from pathlib import Path

from pyserini_ance.storage.files import read_json, write_json


def publish_evaluation(path: Path, value: float, weights: str, seconds: dict[str, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"value": value, "weights": weights, "seconds": seconds})


def open_evaluation(path: Path, weights: str) -> dict:
    """`value` and `seconds`. Raises RuntimeError when it was measured with other weights."""
    measured = read_json(path)
    if measured["weights"] != weights:
        raise RuntimeError(f"{path} was measured with weights {measured['weights'][:12]}, expected {weights[:12]}; remove it")
    return measured
