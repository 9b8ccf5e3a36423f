"""Studies that read files alone, on numbers that are worked out by hand."""

import json
import math
from collections import Counter

import numpy as np
import pytest
from helpers.finished_run import finished

from benchmarks.papers.studies import (
    async_gap,
    cases,
    composition,
    index_costs,
    recall_frequency,
    refresh_costs,
    stage_hours,
    timing,
    training_retrieval,
)
from benchmarks.papers.studies.studied_run import NotKept, StudiedRun, StudySettings
from pyserini_ance.negatives.table import NegativeTable, Origin
from pyserini_ance.pyserini_bridge.vector_files import write_index

EMPTY = -1
LAST = {"row": "only", "RR@10": 0.5, "train seconds": 10.0, "refresh seconds": 5.0, "test seconds": 99.0}
MINED = ("stages.only.terms.query.negatives=[{kind: ann}]", "stages.only.refresh={every_steps: 4}")


def make_run(base, name: str, rows: list[dict], records=(), overrides: tuple[str, ...] = ()) -> StudiedRun:
    """A finished run whose results, metrics and environment are those given."""
    folder = finished(base.parent / name, base, {"only": 0.5}, overrides)
    head = {"recipe": "set/ance", "config_hash": "v", "measures": ["RR@10"], "seconds": {}}
    (folder / "measures.json").write_text(json.dumps({**head, "rows": rows}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    data = {"digest": "d", "documents": 2000, "queries": {"train": 40, "test": 5}}
    (folder / "environment.json").write_text(json.dumps({"data": data}))
    return StudiedRun(name, folder, StudySettings())


def step(number: int, loss: float, seconds: float = 0.5) -> dict:
    return {"event": "step", "stage": "only", "step": number, "loss": loss, "terms": {"query": loss},
            "seconds": seconds, "grad_norm": 1.0}  # fmt: skip


def generation(checkpoint: int, adopted: int, new_share: float | None, **seconds: float) -> dict:
    table = {"kind": "ann", "new_share": new_share, "candidates": 3, "dropped": {}}
    return {"event": "generation", "stage": "only", "step": adopted, "checkpoint_step": checkpoint,
            "tables": {"query.0": table}, "seconds": seconds}  # fmt: skip


def test_async_gap_reads_the_overlap_from_the_share_of_new_negatives(base):
    steps = [step(number, 1.0) for number in range(10)]
    records = [generation(0, 0, None), *steps[:4], generation(4, 6, 0.4), *steps[4:]]
    [row] = async_gap.study([make_run(base, "one", [LAST], records, MINED)]).rows
    expected = {"run": "one", "table": "only query: ann", "mined_at": 0, "next_mined_at": 4, "age": 4}
    assert row == {**expected, "lag": 2, "overlap": pytest.approx(0.6)}


def test_timing_divides_by_documents_queries_and_batches(base, monkeypatch):
    monkeypatch.setattr(timing, "bm25_seconds", lambda run: ([3.0], [0.1]))
    seconds = {"encode_documents": 4.0, "encode_queries": 0.4, "search": 0.8, "filter": 0.2, "build": 0.1}
    again = {**seconds, "encode_documents": 0.001}  # the dev evaluation has encoded them
    first, last = generation(0, 0, None, **seconds), generation(2, 2, 0.5, **again)
    records = [first, step(0, 1.0, 0.25), step(1, 1.0, 0.75), last]
    bm25 = {"row": "bm25", "RR@10": 0.4, "test seconds": 7.0}
    rows = timing.study([make_run(base, "one", [bm25, LAST], records)]).rows
    found = {row["operation"]: row for row in rows}
    milliseconds = {
        "encoding of the corpus": 2.0,  # 4 s for 2,000 documents
        "query encoding": 10.0,  # 0.4 s for 40 queries
        "retrieval": 20.0,
        "dense retrieval in all": 30.0,
        "negative construction per batch": 140.0,  # 1.4 s for 10 batches of 4
        "training step": 500.0,
        "BM25 retrieval": 20.0,  # 0.1 s for 5 test queries
    }
    measured = {operation: found[operation]["each ms"] for operation in milliseconds}
    assert measured == pytest.approx(milliseconds)
    assert found["index build"]["mean seconds"] == pytest.approx(0.1)
    assert found["BM25 index build"]["mean seconds"] == 3.0
    assert found["encoding of the corpus"]["ANCE ms"] == 4.5


def test_hours_of_a_stage_of_its_refreshes_and_of_all(base):
    """Steps of an hour and of two; two refreshes of one and of three hours; half an hour for a checkpoint."""
    refreshes = [generation(0, 0, None, search=3600.0), generation(2, 2, 0.5, search=3600.0, filter=7200.0)]
    saved = {"event": "refresh", "stage": "only", "step": 2, "seconds": 1800.0}
    run = make_run(base, "one", [LAST], [step(0, 1.0, 3600.0), *refreshes, saved, step(1, 1.0, 7200.0)])
    rows = stage_hours.study([run]).rows
    found = [(row["part"], row["times"], row["hours"]) for row in rows]
    assert found == [("only", 1, 3.0), ("refresh", 2, 2.0), ("overall", 1, 3.5)]
    assert rows[1]["MS MARCO hours"] == 1.2 and rows[2]["NQ, TriviaQA hours"] == 21.3


def test_an_index_has_its_size_what_it_found_before_training_and_its_hours(base, tmp_path):
    vectors = np.random.default_rng(0).standard_normal((300, 8), np.float32)
    live = "stages.only.terms.query.negatives=[{kind: live, index: SQ8}]"
    index = (live, "stages.only.trainable=query_tower", f"cache={tmp_path}/cache")
    before = {"bm25": 0.9, "start": 0.1, "start+SQ8": 0.05}
    rows = [{"row": name, "RR@10": value} for name, value in before.items()]
    compressed = {"row": "only+SQ8", "RR@10": 0.4}
    runs = [
        make_run(base, "slow", [*rows, LAST], [step(0, 1.0, 7200.0)]),
        make_run(base, "fast", [*rows, LAST, compressed], [step(0, 1.0, 3600.0)], index),
    ]
    for run in runs:
        write_index(vectors, [str(row) for row in range(300)], run.run.index, {})
    exact, packed = index_costs.study(runs).rows
    assert [row["index"] for row in (exact, packed)] == ["exact", "SQ8"]
    assert exact["index GB"] == vectors.nbytes / 1e9 and vectors.nbytes / 4e9 < packed["index GB"] < 4e-6
    assert [row["RR@10 before"] for row in (exact, packed)] == [0.1, 0.05]
    assert [(row["hours"], row["speedup"]) for row in (exact, packed)] == [(2, 1), (1, 2)]
    assert exact["RR@10"] == packed["RR@10"] == 0.5
    assert (exact["LTRe GB"], packed["LTRe hours"]) == (26, None)


def table(candidates: list[list[int]], anchors: tuple[int, ...] = (2, 5), **more) -> NegativeTable:
    array = np.array(candidates, np.int32)
    return NegativeTable("query", "document", np.array(anchors, np.int32), array,
                         np.zeros(array.shape, np.float32), more.pop("source", "ann"), **more)  # fmt: skip


def counted(*generations: dict) -> tuple[list[dict], composition.Counts, list[dict]]:
    """The pairs of each generation by first encounter, all counts, and the swing."""
    names = [f"g-{number}" for number in range(len(generations))]
    found = composition.count(generations, names)
    first = [found.first[number].to_dict() for number in range(len(names))]
    return first, found, composition.swing(found, names)


def test_composition_by_first_encounter_and_swing():
    """Query 2 has 1, 2, then 3, 4, then 1, 3; query 5 has 1, 6, then 1, 7, then 6, 7."""
    key = ("query", 0)
    tables = ([[1, 2], [1, 6]], [[3, 4], [1, 7]], [[1, 3], [6, 7]])
    composed, found, (first, second, third) = counted(*({key: table(rows)} for rows in tables))
    later = [{"ann of g-0": 1, "ann of g-1": 3}, {"ann of g-0": 2, "ann of g-1": 2}]
    assert composed == [{"ann of g-0": 4}, *later]
    # Of the four pairs of g-0, three are gone in g-1 ((2,1), (2,2), (5,6)); two of these are back in g-2.
    assert (first["new"], first["dropped"], first["returned"]) == (1.0, 0.75, pytest.approx(2 / 3))
    assert (second["new"], second["dropped"], second["returned"]) == (0.75, pytest.approx(1 / 3), None)
    assert (third["negatives"], third["new"], third["dropped"]) == (4, 0.0, None)
    assert composition.kept(found, 0) == [1.0, 0.25, 0.5]
    assert composition.kept(found, 1) == [1.0, pytest.approx(2 / 3)]


def test_composition_takes_origins_and_counts_a_repeated_pair_once():
    origins = (Origin("ann", "earlier-8"), Origin("lookahead", "g-0"))
    origin = {"origins": origins, "origin": np.array([[0, 1, 1], [1, 0, 0]], np.uint8)}
    mixed = table([[1, 2, 2], [3, EMPTY, EMPTY]], source="mix", **origin)
    other = table([[4], [3]], source="bm25")
    composed, *_ = counted({("query", 0): mixed, ("query", 1): other}, {("query", 0): table([[2]], (2,))})
    first = {"ann of earlier-8": 1, "lookahead of g-0": 2, "bm25 of g-0": 1}
    assert composed == [first, {"lookahead of g-0": 1}]


def test_detaching_distances_are_means_over_the_others_and_counts_of_the_first_k():
    """Two equal vectors, and one at right angles to both; lengths do not matter."""
    vectors = np.array([[2.0, 0.0], [1.0, 0.0], [0.0, 5.0]])
    assert recall_frequency.detaching_distances(vectors).tolist() == pytest.approx([0.5, 0.5, 1.0])
    assert math.isnan(recall_frequency.detaching_distances(vectors[:1])[0])
    ranking = {"q1": {"a": 3.0, "b": 2.0, "c": 1.0}, "q2": {"b": 5.0, "a": 1.0}, "q3": {"b": 1.0}}
    assert recall_frequency.recall_counts(ranking, 2) == {"a": 2, "b": 3}


def test_groups_by_frequency_and_thirds_by_distance():
    ids, counts = ["a", "b", "c", "d"], Counter({"b": 1, "c": 2, "d": 7})
    distances, values = np.array([0.4, 0.1, 0.3, 0.2]), {"a": 0.0, "b": 1.0, "c": 0.5}
    rows = list(recall_frequency.group_rows({"side": "query"}, ids, counts, distances, values))
    columns = ("group", "number", "distance", "nDCG@10")
    assert [tuple(row[column] for column in columns) for row in rows] == [
        ("never", 1, 0.4, 0.0),
        ("rare", 1, 0.1, 1.0),
        ("medium", 1, 0.3, 0.5),
        ("frequent", 1, 0.2, None),
        ("close", 2, pytest.approx(0.15), 1.0),
        ("medium", 1, 0.3, 0.5),
        ("far", 1, 0.4, 0.0),
    ]


def test_cases_are_the_queries_by_difference(studied):
    findings = cases.study([studied])
    assert len(findings.rows) == 5 and {row["against"] for row in findings.rows} == {"untrained"}
    gains = [row["nDCG@10"] - row["other nDCG@10"] for row in findings.rows]
    assert gains == sorted(gains, reverse=True)
    ranking = studied.run.ranking("ance", "test").read_text().splitlines()
    tops = {line.split()[0]: line.split()[2] for line in reversed(ranking)}
    assert {row["query"]: row["first"]["first"] for row in findings.rows} == tops
    won, lost = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    assert findings.notes[0].startswith(f"against untrained: {won} won, {5 - won - lost} tied, {lost} lost;")
    shown = [row["query"] for row in findings.summary]
    assert len(shown) == len(set(shown)) == min(3, won) + min(3, lost)


def test_what_a_run_lacks_is_named(studied):
    vars(studied)["generations"] = studied.generations[1:]
    with pytest.raises(NotKept, match=r"2 of 3 refreshes; train it again"):
        composition.study([studied])
    vars(studied)["checkpoints"] = studied.checkpoints[:1]
    with pytest.raises(NotKept, match=r"save_total_limit=100, and save_every_steps"):
        training_retrieval.study([studied])


def test_refresh_costs_add_up_what_refreshes_encoded(base):
    encoded = [{"documents": 2000}, {"documents": 500, "recall": 0.5}, {"documents": 500, "recall": 0.75}]
    records = [generation(4 * i, 4 * i, None) | {"encoded": of} for i, of in enumerate(encoded)]
    runs = [make_run(base, "some", [LAST], records, MINED), make_run(base, "none", [LAST], (), MINED)]
    [row] = refresh_costs.study(runs[:1]).rows
    assert [row[key] for key in ("documents", "recall", "refresh seconds", "RR@10")] == [3000, 0.75, 5.0, 0.5]
    with pytest.raises(NotKept, match="no refresh encoded documents"):
        refresh_costs.study(runs)
