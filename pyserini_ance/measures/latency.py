"""Latency: what queries wait for their answers, in milliseconds; the slowest ones are what a user remembers."""

from collections.abc import Sequence

import numpy as np

PERCENTILES = (50, 95, 99)
LATENCY = ("mean ms", *(f"{percentile}% ms" for percentile in PERCENTILES))


def latency(milliseconds: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles (interpolated, as numpy's) over queries, by the columns of a table."""
    found = [np.mean(milliseconds), *np.percentile(milliseconds, PERCENTILES)]
    return {name: float(value) for name, value in zip(LATENCY, found, strict=True)}
