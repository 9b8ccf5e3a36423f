from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from pyserini_ance.negatives.ann import Ann
from pyserini_ance.negatives.episode import Episode
from pyserini_ance.negatives.lookahead import Lookahead
from pyserini_ance.negatives.mix import Mix, shares
from pyserini_ance.negatives.table import PADDING

ANN, AHEAD, MOMENTUM = {"kind": "ann", "depth": 12}, {"kind": "lookahead", "depth": 9}, {"kind": "momentum"}
NEW = {"kind": "mix", "sources": [ANN, AHEAD]}


@pytest.fixture(scope="module")
def snapshot(split_of, snapshot_of):
    rng = np.random.default_rng(2)
    positives = [rng.choice(30, count, replace=False).tolist() for count in (1, 3, 1, 2) * 10]
    return snapshot_of(split_of(*positives), rng.normal(size=(40, 3)), rng.normal(size=(30, 3)))


@pytest.fixture(scope="module")
def episode(snapshot) -> Episode:
    """The second: the first one's pool is the whole of what ANN and lookahead found."""
    first = Mix.model_validate(NEW).mine(snapshot, "query", Episode("a-00000000", (), (42, 0, 0)))
    return Episode("b-00000000", (first,), (42, 1, 0))


def found(table) -> list[list[int]]:
    return [[row for row in rows if row != PADDING] for rows in table.candidates.tolist()]


def test_without_weights_it_is_all_that_each_found_one_after_the_other(snapshot, episode):
    ann, ahead = (found(source.mine(snapshot, "query")) for source in (Ann(depth=12), Lookahead(depth=9)))
    mixed = Mix.model_validate({"sources": [NEW, MOMENTUM]}).mine(snapshot, "query", episode)
    assert found(mixed) == [(a + b) * 2 for a, b in zip(ann, ahead, strict=True)]
    total = {"ann": sum(map(len, ann)), "lookahead": sum(map(len, ahead))}
    assert mixed.origin_counts() == {f"{source} of {name}": total[source] for name in ("b-00000000", "a-00000000") for source in total}
    dropped = [source.mine(snapshot, "query").dropped["known positives"] for source in (Ann(depth=12), Lookahead(depth=9))]
    assert (mixed.source, mixed.dropped) == ("mix", {"known positives": sum(dropped)})


def test_the_former_pool_grows_as_in_the_papers_code(snapshot):
    """Half as many new ones of each kind in each episode, and the whole former pool: 60, 120, 180."""
    new = {**NEW, "weights": [1, 1], "depth": 6}
    former, widths = (), []
    for number, sources in enumerate([[new], [new, MOMENTUM], [new, MOMENTUM]]):
        table = Mix.model_validate({"sources": sources}).mine(snapshot, "query", Episode(f"e{number}-00000000", former, (1, number)))
        widths.append(set(table.counts.tolist()))
        former = (table,)
    assert widths == [{6}, {12}, {18}]
    assert table.origin_counts() == {f"{source} of e{n}-00000000": 3 * 40 for n in (2, 1, 0) for source in ("ann", "lookahead")}


def test_weights_are_shares_and_each_share_a_sample_of_what_its_source_found(snapshot, episode):
    """alpha 0.5, beta 0.25: of 16, 8 of momentum; of the 8 new ones 2 of lookahead."""
    new = {**NEW, "weights": [0.75, 0.25], "depth": 8}
    source = Mix.model_validate({"sources": [new, MOMENTUM], "weights": [0.5, 0.5], "depth": 16})
    table = source.mine(snapshot, "query", episode)
    pools = {"ann of b-00000000": found(Ann(depth=12).mine(snapshot, "query"))}
    pools["lookahead of b-00000000"] = found(Lookahead(depth=9).mine(snapshot, "query"))
    pools["momentum"] = found(episode.former[0])
    for place in range(40):
        parts = {"ann of b-00000000": [], "lookahead of b-00000000": [], "momentum": []}
        for candidate, origin in zip(table.candidates[place].tolist(), table.origin[place].tolist(), strict=True):
            name = str(table.origins[origin])
            parts[name if name in parts else "momentum"].append(candidate)
        assert [len(part) for part in parts.values()] == [6, 2, 8]
        for name, part in parts.items():
            assert not Counter(part) - Counter(pools[name][place])
            ranks = [pools[name][place].index(row) for row in part if pools[name][place].count(row) == 1]
            assert ranks == sorted(ranks)


def test_the_sample_is_of_the_seed_the_stage_and_the_step(snapshot, episode):
    source = Mix.model_validate({"sources": [ANN, AHEAD], "weights": [1, 1], "depth": 6})
    first, again = (source.mine(snapshot, "query", episode).candidates.tolist() for _ in range(2))
    others = [source.mine(snapshot, "query", replace(episode, key=key)).candidates.tolist() for key in ((43, 1, 0), (42, 2, 0), (42, 1, 4))]
    assert first == again and first not in others and others[0] != others[1] != others[2]


def test_what_several_sources_found_is_dropped_when_asked(snapshot, episode):
    kept, once = (Mix.model_validate({"sources": [NEW, MOMENTUM], "duplicates": d}).mine(snapshot, "query", episode) for d in ("keep", "drop"))
    assert found(once) == [list(dict.fromkeys(row)) for row in found(kept)]
    assert once.dropped["duplicates"] == int(kept.counts.sum() - once.counts.sum()) > 0


@pytest.mark.parametrize(
    ("weights", "total", "sizes"),
    [((1, 1), 60, [30, 30]), ((0.5, 0.5), 31, [16, 15]), ((0.3, 0.7), 10, [3, 7]), ((1, 1, 1), 200, [67, 67, 66]), ((1e-9, 1), 5, [0, 5])],
)
def test_shares_add_up(weights, total, sizes):
    assert shares(weights, total) == sizes


def test_what_it_is_made_of_shows():
    source = Mix.model_validate({"sources": [{**NEW, "weights": [1, 1], "depth": 6}, MOMENTUM, {"kind": "run", "depth": 50}]})
    assert [leaf.kind for leaf in source.leaves] == ["ann", "lookahead", "momentum", "run"]
    assert source.refreshed and source.needs == {"bm25"} and source.most_candidates(7) == 6 + 7 + 50
    static = Mix.model_validate({"sources": [MOMENTUM, {"kind": "run", "file": "a.trec"}]})
    assert not static.refreshed and static.needs == frozenset()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sources": []}, "at least 1 item"),
        ({"sources": [ANN, {"kind": "random"}]}, r"sources.1: `random` has no table to be mixed; list it under `negatives:` beside the mix"),
        ({"sources": [{**ANN, "per_query": 3}]}, "sources.0: per_query says nothing within a mix"),
        ({"sources": [ANN, {**ANN, "sample": "hardest"}]}, "sources.1: sample says nothing within a mix"),
        ({"sources": [ANN, {"kind": "momentum", "when_short": "random"}]}, "sources.1: when_short says nothing within a mix"),
        ({"sources": [ANN], "guards": ["duplicates"]}, "unknown key 'guards'"),
        ({"sources": [ANN], "weights": [1]}, "`weights` and `depth` go together"),
        ({"sources": [ANN], "depth": 5}, "`weights` and `depth` go together"),
        ({"sources": [ANN], "weights": [1, 2], "depth": 5}, "2 weights for 1 sources; give one each"),
        ({"sources": [ANN], "weights": [0], "depth": 5}, "greater than 0"),
    ],
)
def test_what_cannot_be_mixed_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        Mix.model_validate(settings)
