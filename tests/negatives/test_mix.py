from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.lookahead import Lookahead
from pyserini_ance.negatives.mix import Mix, shares
from pyserini_ance.negatives.source import MiningContext
from pyserini_ance.negatives.table import PADDING

ANN, AHEAD, MOMENTUM = {"kind": "ann", "top_k": 12}, {"kind": "lookahead", "top_k": 9}, {"kind": "momentum"}
NEW = {"kind": "mix", "sources": [ANN, AHEAD]}


@pytest.fixture(scope="module")
def snapshot(split_of, snapshot_of):
    rng = np.random.default_rng(2)
    positives = [rng.choice(30, count, replace=False).tolist() for count in (1, 3, 1, 2) * 10]
    return snapshot_of(split_of(*positives), rng.normal(size=(40, 3)), rng.normal(size=(30, 3)))


@pytest.fixture(scope="module")
def context(snapshot) -> MiningContext:
    """The context of a second episode; the first episode's table has all ANN and lookahead candidates."""
    first = Mix.model_validate(NEW).mine(
        snapshot, snapshot.anchor_set("query"), MiningContext("a-00000000", (), (42, 0, 0))
    )
    return MiningContext("b-00000000", (first,), (42, 1, 0))


def found(table) -> list[list[int]]:
    return [[row for row in rows if row != PADDING] for rows in table.candidates.tolist()]


def test_without_weights_all_candidates_are_concatenated(snapshot, context):
    ann, ahead = (
        found(source.mine(snapshot, snapshot.anchor_set("query")))
        for source in (Ann(top_k=12), Lookahead(top_k=9))
    )
    mixed = Mix.model_validate({"sources": [NEW, MOMENTUM]}).mine(
        snapshot, snapshot.anchor_set("query"), context
    )
    assert found(mixed) == [(a + b) * 2 for a, b in zip(ann, ahead, strict=True)]
    total = {"ann": sum(map(len, ann)), "lookahead": sum(map(len, ahead))}
    assert mixed.origin_counts() == {
        f"{source} of {name}": total[source] for name in ("b-00000000", "a-00000000") for source in total
    }
    dropped = [
        source.mine(snapshot, snapshot.anchor_set("query")).dropped["known positives"]
        for source in (Ann(top_k=12), Lookahead(top_k=9))
    ]
    assert (mixed.source, mixed.dropped) == ("mix", {"known positives": sum(dropped)})


def test_pools_grow_as_in_the_papers_code(snapshot):
    """Each episode adds equally many of both kinds to the previous pool: 60, 120, 180 in the paper's code."""
    new = {**NEW, "weights": [1, 1], "top_k": 6}
    previous_stage, widths = (), []
    for number, sources in enumerate([[new], [new, MOMENTUM], [new, MOMENTUM]]):
        table = Mix.model_validate({"sources": sources}).mine(
            snapshot,
            snapshot.anchor_set("query"),
            MiningContext(f"e{number}-00000000", previous_stage, (1, number)),
        )
        widths.append(set(table.counts.tolist()))
        previous_stage = (table,)
    assert widths == [{6}, {12}, {18}]
    assert table.origin_counts() == {
        f"{source} of e{n}-00000000": 3 * 40 for n in (2, 1, 0) for source in ("ann", "lookahead")
    }


def test_weights_are_the_shares_of_samples(snapshot, context):
    """alpha 0.5, beta 0.25: of 16 candidates, 8 are momentum, and of the 8 new ones 2 are lookahead."""
    new = {**NEW, "weights": [0.75, 0.25], "top_k": 8}
    source = Mix.model_validate({"sources": [new, MOMENTUM], "weights": [0.5, 0.5], "top_k": 16})
    table = source.mine(snapshot, snapshot.anchor_set("query"), context)
    pools = {"ann of b-00000000": found(Ann(top_k=12).mine(snapshot, snapshot.anchor_set("query")))}
    pools["lookahead of b-00000000"] = found(Lookahead(top_k=9).mine(snapshot, snapshot.anchor_set("query")))
    pools["momentum"] = found(context.previous_stage[0])
    for place in range(40):
        parts = {"ann of b-00000000": [], "lookahead of b-00000000": [], "momentum": []}
        for candidate, origin in zip(
            table.candidates[place].tolist(), table.origin[place].tolist(), strict=True
        ):
            name = str(table.origins[origin])
            parts[name if name in parts else "momentum"].append(candidate)
        assert [len(part) for part in parts.values()] == [6, 2, 8]
        for name, part in parts.items():
            assert not Counter(part) - Counter(pools[name][place])
            ranks = [pools[name][place].index(row) for row in part if pools[name][place].count(row) == 1]
            assert ranks == sorted(ranks)


def test_samples_depend_on_seed_stage_and_step(snapshot, context):
    source = Mix.model_validate({"sources": [ANN, AHEAD], "weights": [1, 1], "top_k": 6})
    first, again = (
        source.mine(snapshot, snapshot.anchor_set("query"), context).candidates.tolist() for _ in range(2)
    )
    others = [
        source.mine(snapshot, snapshot.anchor_set("query"), replace(context, key=key)).candidates.tolist()
        for key in ((43, 1, 0), (42, 2, 0), (42, 1, 4))
    ]
    assert first == again and first not in others and others[0] != others[1] != others[2]


def test_duplicates_are_dropped_on_request(snapshot, context):
    kept, once = (
        Mix.model_validate({"sources": [NEW, MOMENTUM], "duplicates": d}).mine(
            snapshot, snapshot.anchor_set("query"), context
        )
        for d in ("keep", "drop")
    )
    assert found(once) == [list(dict.fromkeys(row)) for row in found(kept)]
    assert once.dropped["duplicates"] == int(kept.counts.sum() - once.counts.sum()) > 0


@pytest.mark.parametrize(
    ("weights", "total", "sizes"),
    [
        ((1, 1), 60, [30, 30]),
        ((0.5, 0.5), 31, [16, 15]),
        ((0.3, 0.7), 10, [3, 7]),
        ((1, 1, 1), 200, [67, 67, 66]),
        ((1e-9, 1), 5, [0, 5]),
    ],
)
def test_shares_add_up(weights, total, sizes):
    assert shares(weights, total) == sizes


def test_properties_follow_from_the_sources():
    source = Mix.model_validate(
        {"sources": [{**NEW, "weights": [1, 1], "top_k": 6}, MOMENTUM, {"kind": "bm25", "top_k": 50}]}
    )
    assert [leaf.kind for leaf in source.components] == ["ann", "lookahead", "momentum", "bm25"]
    assert source.is_dynamic and source.needs == {"bm25"} and source.max_candidates(7) == 6 + 7 + 50
    static = Mix.model_validate({"sources": [MOMENTUM, {"kind": "ranking", "file": "a.trec"}]})
    assert not static.is_dynamic and static.needs == frozenset()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sources": []}, "at least 1 item"),
        (
            {"sources": [ANN, {"kind": "random"}]},
            r"sources.1: `random` has no table to be mixed; list it under `negatives:`, next to the mix",
        ),
        ({"sources": [{**ANN, "num_negatives": 3}]}, "sources.0.num_negatives has no effect inside a mix"),
        (
            {"sources": [ANN, {**ANN, "sampling_strategy": "top"}]},
            "sources.1.sampling_strategy has no effect inside a mix",
        ),
        (
            {"sources": [ANN, {"kind": "momentum", "on_shortage": "fill_random"}]},
            "sources.1.on_shortage has no effect inside a mix",
        ),
        ({"sources": [ANN], "filters": ["duplicates"]}, "unknown key 'filters'"),
        ({"sources": [ANN], "weights": [1]}, "set both `weights` and `top_k`"),
        ({"sources": [ANN], "top_k": 5}, "set both `weights` and `top_k`"),
        (
            {"sources": [ANN], "weights": [1, 2], "top_k": 5},
            "2 weights for 1 sources; pass one for each source",
        ),
        ({"sources": [ANN], "weights": [0], "top_k": 5}, "greater than 0"),
    ],
)
def test_invalid_mixes_are_rejected(settings, message):
    with pytest.raises(ValidationError, match=message):
        Mix.model_validate(settings)
