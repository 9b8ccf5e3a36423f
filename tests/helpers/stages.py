"""Stages of small recipes."""

from typing import Any

LOSS = {"kind": "nll", "scale": 0.1}
RANDOM, ANN = {"kind": "random"}, {"kind": "ann", "top_k": 8}


def make_stage(*negatives: dict, steps: int = 4, **more: Any) -> dict:
    """Steps of four queries with one term, whose loss is LOSS."""
    terms = {"query": {"negatives": list(negatives), "loss": LOSS}}
    settings = {"steps": steps, "batch_queries": 4, "optimizer": {"learning_rate": 1e-3}, "terms": terms}
    return {**settings, **more}
