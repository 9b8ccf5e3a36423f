from typing import ClassVar

import numpy as np
import pytest
from helpers.filter_fixture import apply_filters, candidates_of

from pyserini_ance.negatives.filters.base import Candidates, Filter
from pyserini_ance.negatives.table import PADDING


class Multiples(Filter):
    kind: str = "multiples"
    of: int

    def mask(self, candidates: Candidates) -> np.ndarray:
        return candidates.rows % self.of == 0


class ExpensiveMultiples(Multiples):
    kind: str = "expensive_multiples"
    expensive: ClassVar[bool] = True


def filtered_slowly(found: Candidates, positives: list, cheap: list[int], expensive: list[int], width: int):
    rows, dropped = [], {"known positives": 0, "multiples": 0, "expensive_multiples": 0}
    for known, line in zip(positives, found.rows.tolist(), strict=True):
        kept = []
        for row in line:
            if row == PADDING:
                continue
            if row in known:
                dropped["known positives"] += 1
            elif any(row % of == 0 for of in cheap):
                dropped["multiples"] += 1
            elif len(kept) < width:
                if any(row % of == 0 for of in expensive):
                    dropped["expensive_multiples"] += 1
                else:
                    kept.append(row)
        rows.append(kept + [PADDING] * (width - len(kept)))
    return rows, dropped


@pytest.mark.parametrize("width", [1, 4, 12, 30])
def test_apply_filters_agrees_with_a_slow_loop(width):
    rng = np.random.default_rng(width)
    positives = [rng.choice(200, rng.integers(1, 9), replace=False).tolist() for _ in range(25)]
    rows = np.stack([rng.choice(200, 30, replace=False) for _ in positives])
    rows[3:9, 20:] = PADDING
    found = candidates_of(positives, rows, documents=list(map(str, range(200))))
    rules = [Multiples(of=7), ExpensiveMultiples(of=2), Multiples(of=5), ExpensiveMultiples(of=3)]
    candidates, scores, dropped = apply_filters(found, rules, width)
    expected, counts = filtered_slowly(found, positives, [7, 5], [2, 3], width)
    assert candidates.tolist() == expected and dropped == counts
    for line, kept, of_kept in zip(rows.tolist(), candidates.tolist(), scores, strict=True):
        places = [line.index(row) for row in kept if row != PADDING]
        assert of_kept[np.isfinite(of_kept)].tolist() == [-float(place) for place in places]


class Own(Filter):
    returned: list
    dtype: str = "bool"

    def mask(self, candidates: Candidates) -> np.ndarray:
        if not self.returned:
            raise KeyError("oops")
        return np.array(self.returned, self.dtype)


def test_an_own_filter_that_fails_or_returns_no_mask_is_named():
    found = candidates_of([[3], [0]], [[1, 2], [4, 5]])
    one_line, numbers = Own(returned=[True, False]), Own(returned=[[1, 0], [0, 0]], dtype="int8")
    for own, got in ((one_line, r"bool \(2,\)"), (numbers, r"int8 \(2, 2\)")):
        message = rf"mask of filter {own.kind} returned {got}; expected .* bool \(2, 2\)"
        with pytest.raises(ValueError, match=message):
            apply_filters(found, [own], 2)
    for kind, notes in (("own:Short", ["raised in mask of own:Short"]), ("own", None)):
        with pytest.raises(KeyError, match="oops") as error:
            apply_filters(found, [Own(kind=kind, returned=[])], 2)
        assert getattr(error.value, "__notes__", None) == notes
