from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.negatives.mix import concatenate, drop_duplicates, sample
from pyserini_ance.negatives.table import PADDING, NegativeTable


def table(source: str, *candidates: list[int], generation: str = "a-00000000") -> NegativeTable:
    """A candidate's score is its column."""
    rows = np.array(candidates, np.int32)
    scores = np.where(rows == PADDING, -np.inf, np.arange(rows.shape[1])).astype(np.float32)
    anchors = np.arange(len(rows), dtype=np.int32)
    return NegativeTable(
        "query", "document", anchors, rows, scores, source, {"known positives": 2}
    ).of_generation(generation)


def entries(mixed: NegativeTable) -> list[list[tuple]]:
    """(candidate, score, origin) of each anchor; padding must come last."""
    found = []
    for row, scores, origin in zip(
        mixed.candidates.tolist(), mixed.scores.tolist(), mixed.origin.tolist(), strict=True
    ):
        count = sum(candidate != PADDING for candidate in row)
        assert (
            row[count:] == [PADDING] * (len(row) - count)
            and scores[count:] == [-np.inf] * (len(row) - count)
            and not any(origin[count:])
        )
        found.append(
            [
                (c, s, str(mixed.origins[o]))
                for c, s, o in zip(row[:count], scores[:count], origin[:count], strict=True)
            ]
        )
    return found


def test_a_sample_is_uniform_and_in_rank_order():
    whole = table("ann", *[[4, 5, 6, 7]] * 6000)
    drawn = sample(whole, 2, np.random.default_rng(0))
    counts = Counter(tuple(candidate for candidate, *_ in row) for row in entries(drawn))
    assert set(counts) == set(combinations([4, 5, 6, 7], 2))
    assert (
        sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 20.5
    )  # 5 degrees of freedom, p = 0.001


def test_a_sample_larger_than_the_pool_is_the_pool():
    drawn = sample(table("ann", [4, 5, 6], [7, PADDING, PADDING], [PADDING] * 3), 2, np.random.default_rng(0))
    assert [len(row) for row in entries(drawn)] == [2, 1, 0] and drawn.candidates.shape == (3, 2)


def test_concatenation_keeps_repeats_and_origins():
    ann, ahead = (
        table("ann", [4, 5, PADDING], [6, PADDING, PADDING]),
        table("lookahead", [5, 4], [9, 6], generation="b-00000002"),
    )
    mixed = concatenate([ann, ahead], "mix", {"x": 1}, World())
    a, b = "ann of a-00000000", "lookahead of b-00000002"
    assert entries(mixed) == [[(4, 0, a), (5, 1, a), (5, 0, b), (4, 1, b)], [(6, 0, a), (9, 0, b), (6, 1, b)]]
    assert (mixed.source, mixed.dropped, mixed.candidates.dtype, mixed.origin.dtype) == (
        "mix",
        {"x": 1},
        np.int32,
        np.uint8,
    )
    again = concatenate([mixed, ann], "momentum", {}, World())
    assert again.origins == mixed.origins and again.origin_counts() == {a: 6, b: 4}


def test_the_first_of_repeated_candidates_is_kept():
    mixed = concatenate([table("ann", [4, 5, PADDING]), table("lookahead", [5, 6, 4])], "mix", {}, World())
    once = drop_duplicates(mixed)
    assert [row[0] for row in entries(once)[0]] == [4, 5, 6] and once.dropped == {"duplicates": 2}
    assert once.origin_counts() == {"ann of a-00000000": 2, "lookahead of a-00000000": 1}


def test_too_many_origins_are_rejected():
    tables = [table("ann", [4], generation=f"a-{step:08d}") for step in range(257)]
    assert len(concatenate(tables[:256], "mix", {}, World()).origins) == 256
    with pytest.raises(ValueError, match="candidates of 257 origins in one table; at most 256"):
        concatenate(tables, "mix", {}, World())


def test_origins_are_saved_and_loaded(tmp_path):
    mixed = concatenate(
        [table("ann", [4, 5]), table("run", [5, PADDING], generation="b-00000000")], "mix", {}, World()
    )
    mixed.save(tmp_path / "t")
    loaded = NegativeTable.load(tmp_path / "t")
    assert (
        entries(loaded) == entries(mixed)
        and loaded.origins == mixed.origins
        and loaded.of_generation("c").origins == mixed.origins
    )


def test_a_sample_does_not_depend_on_the_shares():
    whole = table("ann", *np.arange(60).reshape(12, 5).tolist())
    drawn = sample(whole, 2, np.random.default_rng(7))
    for first, last in ((0, 5), (5, 12)):
        part = sample(whole.of_anchors(whole.anchors[first:last]), 2, np.random.default_rng(7), first)
        assert part.candidates.tolist() == drawn.candidates[first:last].tolist()
