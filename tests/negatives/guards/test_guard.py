"""Several guards at once, against a slow loop; and how deep the costly ones are made to look."""

from typing import ClassVar

import numpy as np
import pytest
from negatives.guards.given import candidates_of

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.guards.candidates import Candidates
from pyserini_ance.negatives.guards.guard import Guard, screen
from pyserini_ance.negatives.table import PADDING


class Multiples(Guard):
    kind: str = "multiples"
    of: int

    def mark(self, candidates: Candidates) -> np.ndarray:
        return candidates.rows % self.of == 0


class CostlyMultiples(Multiples):
    kind: str = "costly"
    costly: ClassVar[bool] = True
    looked: ClassVar[list] = []

    def mark(self, candidates: Candidates) -> np.ndarray:
        self.looked.append(candidates.rows)
        return super().mark(candidates)


@pytest.fixture(autouse=True)
def looked():
    CostlyMultiples.looked.clear()
    return CostlyMultiples.looked


def screened_slowly(found: Candidates, positives: list[list[int]], cheap: list[int], costly: list[int], width: int):
    rows, dropped = [], {"known positives": 0, "multiples": 0, "costly": 0}
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
                if any(row % of == 0 for of in costly):
                    dropped["costly"] += 1
                else:
                    kept.append(row)
        rows.append(kept + [PADDING] * (width - len(kept)))
    return rows, dropped


@pytest.mark.parametrize("width", [1, 4, 12, 30])
def test_screening_agrees_with_a_slow_loop(width):
    rng = np.random.default_rng(width)
    positives = [rng.choice(200, rng.integers(1, 9), replace=False).tolist() for _ in range(25)]
    rows = np.stack([rng.choice(200, 30, replace=False) for _ in positives])
    rows[3:9, 20:] = PADDING
    found = candidates_of(positives, rows, documents=["x"] * 200)
    guards = [Multiples(of=7), CostlyMultiples(of=2), Multiples(of=5), CostlyMultiples(of=3)]
    candidates, scores, dropped = screen(found, guards, width)
    expected, counts = screened_slowly(found, positives, [7, 5], [2, 3], width)
    assert candidates.tolist() == expected and dropped == counts
    places = [[line.tolist().index(row) for row in kept if row != PADDING] for line, kept in zip(rows, candidates.tolist(), strict=True)]
    assert [line[np.isfinite(line)].tolist() for line in scores] == [[-float(place) for place in line] for line in places]


def test_without_guards_known_positives_go():
    rows, _, dropped = screen(candidates_of([[3], [0]], [[3, 1, 2], [4, 5, PADDING]]), [], 2)
    assert rows.tolist() == [[1, 2], [4, 5]] and dropped == {"known positives": 1}


def test_a_costly_guard_looks_no_deeper_than_it_must_and_at_nothing_twice(looked):
    rows, _, dropped = screen(candidates_of([[1], [1]], [[2, 1, 3, 4, 5, 7], [9, 11, 13, 2, 4, 6]]), [CostlyMultiples(of=2)], 3)
    assert rows.tolist() == [[3, 5, 7], [9, 11, 13]] and dropped == {"known positives": 1, "costly": 2}
    seen = [sorted(row for row in line if row != PADDING) for line in np.concatenate(looked, axis=1).tolist()]
    assert seen == [[2, 3, 4, 5, 7], [9, 11, 13]]


def test_pairs_come_by_document_and_answers_return_to_their_places():
    for anchor, rows in (("query", [[5, 2, PADDING], [2, 5, 7]]), ("document", [[1, 0, PADDING], [0, 1, PADDING]])):
        found = candidates_of([[3], [4]], rows, anchor=anchor)

        def judge(queries, documents):
            assert documents.tolist() == sorted(documents)
            return (queries + documents) % 2 == 0

        anchors = {"query": [0, 1], "document": [3, 4]}[anchor]
        expected = [[row != PADDING and (row + a) % 2 == 0 for row in line] for a, line in zip(anchors, rows, strict=True)]
        assert found.mark_pairs(judge).tolist() == expected


def marked(world: World) -> list:
    found = candidates_of([[3], [4]], [[5, 2, 8], [2, 5, PADDING]], world=world)
    return found.mark_pairs(lambda queries, documents: (queries + documents) % 2 == 0).tolist()


def test_processes_share_the_pairs(run_processes):
    assert run_processes(2, marked) == [[[False, True, True], [False, True, False]]] * 2
