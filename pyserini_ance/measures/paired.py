"""Paired tests: whether two systems differ on the same queries by more than chance.

Source: Smucker, Allan and Carterette 2007, "A comparison of statistical significance tests for information retrieval evaluation".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

PERMUTATIONS = 100_000
SEED = 42  # of the permutations: a table says the same twice
TIE = 1e-12  # a smaller difference is one of rounding: equal values have means that differ so, over 3 runs and over 24


@dataclass(frozen=True)
class Difference:
    """The mean of the queries' differences; `p` of that or a larger one, of either sign, if there were none; queries won, tied, lost."""

    mean: float
    p: float
    wins: int
    ties: int
    losses: int

    def __str__(self) -> str:
        return f"{self.mean:+.3f}, p {self.p:.3f}" if self.p >= 0.001 else f"{self.mean:+.3f}, p <0.001"


def t_test(differences: np.ndarray) -> float:
    """Student's, of the differences (Q,) of the queries. One, or several that are all the same, have no variance to judge by: of these
    the share of the sign changes with as large a mean.
    """
    if not differences.any():
        return 1.0
    if np.ptp(differences) < TIE:
        return 2.0 ** (1 - len(differences))
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def permutation_test(differences: np.ndarray) -> float:
    """Fisher's: the share of the sign changes of (Q,) differences with as large a mean; of `PERMUTATIONS` drawn ones where there are more."""
    if len(differences) == 1 or not differences.any():
        return 1.0
    found = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=PERMUTATIONS, batch=1000, rng=SEED)
    return float(found.pvalue)


TESTS: dict[str, Callable[[np.ndarray], float]] = {"t": t_test, "permutation": permutation_test}


def differences(systems: Mapping[str, np.ndarray], baseline: np.ndarray, test: str = "t") -> dict[str, Difference]:
    """Each system's values (Q,) of the same queries against the baseline's, p corrected for their number (Holm)."""
    found = {name: np.where(np.abs(values - baseline) < TIE, 0.0, values - baseline) for name, values in systems.items()}
    corrected = holm([TESTS[test](difference) for difference in found.values()])
    counts = {name: [int((sign * difference > 0).sum()) for sign in (1, -1)] for name, difference in found.items()}
    return {
        name: Difference(float(found[name].mean()), p, wins, len(found[name]) - wins - losses, losses)
        for (name, (wins, losses)), p in zip(counts.items(), corrected, strict=True)
    }


def holm(ps: Sequence[float]) -> list[float]:
    """p values such that any below a level is so with that chance for all of them together. Source: Holm 1979."""
    order = np.argsort(ps, kind="stable")
    steps = np.minimum(np.sort(ps) * np.arange(len(ps), 0, -1), 1.0)
    corrected = np.empty(len(ps))
    corrected[order] = np.maximum.accumulate(steps)
    return corrected.tolist()
