"""Paired tests: do two systems differ on the same queries by more than chance?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

# Smaller differences are rounding errors, as between means of equal values over 3 and over 24 runs.
TIE = 1e-12


@dataclass(frozen=True)
class Difference:
    """A comparison of one system with a baseline over the same queries.

    `mean` is the mean difference, `p` the probability of it, or of a larger one of either sign, if the
    systems were equal. `wins`, `ties` and `losses` count queries.
    """

    mean: float
    p: float
    wins: int
    ties: int
    losses: int

    def __str__(self) -> str:
        return f"{self.mean:+.3f}, p {self.p:.3f}" if self.p >= 0.001 else f"{self.mean:+.3f}, p <0.001"


def t_test(differences: np.ndarray) -> float:
    """The p value of Student's t test of the queries' differences (Q,).

    Equal differences (or a single one) have no variance; their p value is the share of sign changes whose
    mean is as large.
    """
    if not differences.any():
        return 1.0
    if np.ptp(differences) < TIE:
        return 2.0 ** (1 - len(differences))
    from scipy import stats

    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def differences(systems: Mapping[str, np.ndarray], baseline: np.ndarray) -> dict[str, Difference]:
    """Compare each system's values (Q,) with the baseline's values of the same queries.

    p values are corrected for the number of systems (Holm).
    """
    by_system = {
        name: np.where(np.abs(values - baseline) < TIE, 0.0, values - baseline)
        for name, values in systems.items()
    }
    corrected = holm([t_test(values) for values in by_system.values()])
    result = {}
    for (name, values), p in zip(by_system.items(), corrected, strict=True):
        wins, losses = int((values > 0).sum()), int((values < 0).sum())
        result[name] = Difference(float(values.mean()), p, wins, len(values) - wins - losses, losses)
    return result


def holm(ps: Sequence[float]) -> list[float]:
    """p values corrected for their number: at any level, the chance of one false positive or more is at most
    the level.

    Source: Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    order = np.argsort(ps, kind="stable")
    steps = np.minimum(np.sort(ps) * np.arange(len(ps), 0, -1), 1.0)
    corrected = np.empty(len(ps))
    corrected[order] = np.maximum.accumulate(steps)
    return corrected.tolist()
