import statistics
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.negatives import snapshot as snapshots
from pyserini_ance.negatives.filters.texts import Duplicates
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.negatives.table import PER_ANCHOR
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.recipe.models import Recipe
from pyserini_ance.refresher.refresher import CheckpointRemoved, Refresher
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, prune_stage, publish_checkpoint
from pyserini_ance.runs.generation import (
    PRODUCT_NAMES,
    Generation,
    ProductKind,
    RefreshRequest,
    open_evaluation,
    open_generation,
    read_positive_ranks,
    table_name,
)
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import MANIFEST
from pyserini_ance.trainer.batch import anchor_sets_of, plan_batch

KEY, DEPTH = ("query", 0), 5
STAGE = {
    "steps": 4,
    "batch_queries": 4,
    "optimizer": {"learning_rate": 1e-3},
    "terms": {"query": {"negatives": [{"kind": "ann", "top_k": DEPTH}]}},
    "refresh": {"every_steps": 2},
    "evaluate": {"every_steps": 2, "measure": "RR@10"},
}
READY = {"every_steps": 2, "mode": "async", "adopt": "when_ready"}
ON_QUERIES = {"anchor": "document", "negatives": [{"kind": "ann", "top_k": 3}]}


class Made:
    """Checkpoints, their refresher, and their vectors by the plain encoder."""

    def __init__(self, recipe: Recipe, folder: Path, world: World | None = None):
        self.recipe, self.run, self.said = recipe, RunDir(folder), []
        self.data = tokenize(recipe, read_collection(recipe))
        self.refresher = Refresher(recipe, self.data, self.run, world or World(), self.said.append)

    def checkpoint(self, step: int, change: float = 0.0) -> Checkpoint:
        encoder = initial_encoder(self.recipe.encoder, 0)
        for parameter in encoder.towers.parameters():
            parameter.data += change * parameter.data.sign()
        return publish_checkpoint(self.run, encoder, None, TrainingProgress("a", step))

    def make(self, kind: ProductKind, checkpoint: Checkpoint) -> None:
        self.refresher.make(RefreshRequest(kind, "a", int(checkpoint.folder.name[2:]), checkpoint.weights))

    def tables(self, checkpoint: Checkpoint) -> Generation:
        self.make("tables", checkpoint)
        folder = self.run.negatives / checkpoint.folder.name
        return open_generation(folder, {"weights": checkpoint.weights, **self.data.identity})

    def dev(self, checkpoint: Checkpoint) -> dict:
        self.make("dev", checkpoint)
        return open_evaluation(self.run.evaluations / f"{checkpoint.folder.name}.json", checkpoint.weights)

    def scores(self, checkpoint: Checkpoint, split: str = "train") -> np.ndarray:
        """(queries, 30)"""
        encoder, collection = load_encoder(checkpoint.encoder), self.data.collection
        queries = collection.split(split).queries
        documents = encoder.encode(collection.documents.take(range(30)), "document")
        return encoder.encode(queries.take(range(len(queries))), "query") @ documents.T


@pytest.fixture
def made(small_recipe, tmp_path) -> Made:
    return Made(small_recipe({"a": STAGE}), tmp_path)


def test_the_report_agrees_with_a_slow_loop(made):
    first, checkpoint = made.tables(made.checkpoint(0)), made.checkpoint(2, change=0.05)
    generation = made.tables(checkpoint)
    report, table = generation.report["tables"]["query.0"], generation.tables[KEY]
    scores = made.scores(checkpoint)
    width = DEPTH + 2  # the first query has two positives, so that two more are fetched

    ranks, margins, dropped, new = [], [], 0, []
    for query in range(15):
        positives = made.data.split.qrels.relevant(query).tolist()
        ranking = np.argsort(-scores[query]).tolist()[:width]
        places = [ranking.index(row) + 1 for row in positives if row in ranking]
        ranks.append(min(places, default=None))
        dropped += len(places)
        candidates = table.candidates[query].tolist()
        assert candidates == [row for row in np.argsort(-scores[query]) if row not in positives][:DEPTH]
        assert table.scores[query] == pytest.approx(scores[query][candidates], rel=1e-4)
        own = max(scores[query][row] for row in positives)
        margins.append(own - statistics.fmean(scores[query][row] for row in candidates))
        new += [row not in first.tables[KEY].candidates[query] for row in candidates]
    found = read_positive_ranks(generation.folder, "query.0")
    assert found.tolist() == [rank or 0 for rank in ranks] and None in ranks and any(ranks)
    mean = pytest.approx(sum(1 / rank for rank in ranks if rank) / 15, abs=1e-4)
    assert report["positives"] == {"ranked": 15 - ranks.count(None), "mean_reciprocal_rank": mean}
    assert (report["candidates"], report["short_queries"]) == (15 * DEPTH, 0)
    assert report["dropped"] == table.dropped == {"known positives": dropped}
    assert report["new_share"] == pytest.approx(statistics.fmean(new), abs=1e-4) and report["new_share"] > 0
    assert report["margin"]["mean"] == pytest.approx(statistics.fmean(margins), abs=1e-3)
    assert report["margin"]["p50"] == pytest.approx(statistics.median(margins), abs=1e-3)
    p10, *_, p90 = statistics.quantiles(margins, n=10, method="inclusive")
    assert (report["margin"]["p10"], report["margin"]["p90"]) == pytest.approx((p10, p90), abs=1e-3)
    assert first.report["tables"]["query.0"]["new_share"] is None


def test_a_refresh_in_chunks_mines_for_some_queries_in_turn(small_recipe, tmp_path):
    lines = (f"train-{query} Q0 blue-tiger 1 2 t\n" for query in range(15))
    (tmp_path / "ranked.trec").write_text("".join(lines))
    sources = [{"kind": "ranking", "file": str(tmp_path / "ranked.trec")}, {"kind": "ann", "top_k": DEPTH}]
    chunked = {"every_steps": 2, "query_chunks": 4}
    stage = {**STAGE, "terms": {"query": {"negatives": sources}}, "refresh": chunked}
    made = Made(small_recipe({"a": stage}), tmp_path / "run")
    mined = [made.tables(made.checkpoint(step, change=step / 10)) for step in (0, 2, 8)]
    assert [table.anchors.tolist() for table in mined[0].tables.values()] == [list(range(15)), [0, 1, 2]]
    later = [generation.tables["query", 1].anchors.tolist() for generation in mined[1:]]
    assert later == [[3, 4, 5, 6], [0, 1, 2]]
    assert [generation.report["tables"]["query.1"]["new_share"] for generation in mined] == [None] * 3
    ranks = [read_positive_ranks(generation.folder, "query.1") for generation in mined]
    assert [len(of_chunk) for of_chunk in ranks] == [3, 4, 3]
    whole = Made(small_recipe({"a": {**stage, "refresh": {"every_steps": 2}}}), tmp_path / "whole")
    table = whole.tables(whole.checkpoint(2, change=0.2)).tables["query", 1]
    assert mined[1].tables["query", 1].candidates.tolist() == table.candidates[3:7].tolist()


def test_steps_leave_out_queries_with_too_few_candidates(small_recipe, tmp_path):
    """As the trainer of microsoft/ANCE for OpenQA, which skips lines with fewer than two negatives."""
    file = tmp_path / "ranked.trec"
    source = {"kind": "ranking", "file": str(file), "min_candidates": 2}
    terms = {"query": {"negatives": [source, {"kind": "ann", "top_k": DEPTH}]}}
    collection, lines = read_collection(small_recipe({"a": STAGE})), []
    ids, split = collection.documents.ids, collection.split("train")
    for query in range(15):
        known = set(split.qrels.relevant(query).tolist())
        others = [ids[row] for row in range(len(ids)) if row not in known][: 1 + query % 3]
        lines += [f"train-{query} Q0 {document} 1 {9 - rank} t\n" for rank, document in enumerate(others)]
    file.write_text("".join(lines))
    made = Made(small_recipe({"a": {**STAGE, "terms": terms}}), tmp_path / "run")
    generation, enough = made.tables(made.checkpoint(0)), [query for query in range(15) if query % 3]
    assert [table.anchors.tolist() for table in generation.tables.values()] == [enough, list(range(15))]
    report = generation.report["tables"]["query.0"]
    assert (report["left_out"], report["candidates"], report["dropped"]) == (5, 25, {"known positives": 0})
    stage = made.recipe.stages["a"]
    sets = anchor_sets_of(made.data.anchor_sets, generation.tables.values(), made.data.rows_of_splits(None))
    drawn = [plan_batch(stage, 0, step, 42, sets, generation.tables).queries for step in range(20)]
    assert np.unique(np.concatenate(drawn)).tolist() == enough


def test_positives_have_ranks_and_a_margin_in_a_ranking_from_a_file(small_recipe, tmp_path):
    """Query 0, whose positives are red-apple and red-tiger, ranks the second of them second."""
    lines = ["train-0 Q0 blue-tiger 1 9 t", "train-0 Q0 red-tiger 2 8 t", "train-0 Q0 blue-horse 3 5 t"]
    lines += [f"train-{query} Q0 blue-tiger 1 2 t" for query in range(1, 15)]
    (tmp_path / "ranked.trec").write_text("\n".join(lines) + "\n")
    source = {"kind": "ranking", "file": str(tmp_path / "ranked.trec")}
    stage = {**STAGE, "terms": {"query": {"negatives": [source]}}, "refresh": None}
    made = Made(small_recipe({"a": stage}), tmp_path / "run")
    generation = made.tables(made.checkpoint(0))
    report = generation.report["tables"]["query.0"]
    assert read_positive_ranks(generation.folder, "query.0").tolist() == [2, *[0] * 14]
    assert report["positives"] == {"ranked": 1, "mean_reciprocal_rank": round(0.5 / 15, 4)}
    assert report["margin"]["mean"] == 8 - (9 + 5) / 2


def test_mining_and_measuring_a_checkpoint_share_one_encoding(made, monkeypatch):
    encode = Mock(wraps=snapshots.encode_shards)
    monkeypatch.setattr(snapshots, "encode_shards", encode)
    first, second = made.checkpoint(2), made.checkpoint(4, change=0.05)
    made.tables(first)
    assert "encode_documents" not in made.dev(first)["seconds"] and encode.call_count == 1
    made.dev(second)
    assert encode.call_count == 2 and made.dev(first)["value"] != made.dev(second)["value"]


@pytest.mark.parametrize(
    ("changes", "sampled"),
    [
        ({}, 0),  # the tables of this step need all vectors
        ({"trainable": "query_tower"}, 0),
        ({"refresh": {"every_steps": 3}}, 20),
        ({"refresh": READY}, 20),  # newer tables may replace those of this step
    ],
)
def test_a_dev_sample_is_encoded_whatever_is_there(small_recipe, tmp_path, monkeypatch, changes, sampled):
    evaluate = {**STAGE["evaluate"], "sample_documents": 20}
    made = Made(small_recipe({"a": {**STAGE, "evaluate": evaluate, **changes}}), tmp_path)
    checkpoint, encode_some, documents = made.checkpoint(2), snapshots.encode_some, []

    def counted(encoder, tokens, rows, side, *rest):
        documents.append(len(rows) if side == "document" else 0)
        return encode_some(encoder, tokens, rows, side, *rest)

    monkeypatch.setattr(snapshots, "encode_some", counted)
    made.dev(checkpoint)
    assert sum(documents) == sampled
    Snapshot.of(checkpoint, made.data, made.recipe, made.run, World()).document_vectors[:]
    next(made.run.evaluations.iterdir()).unlink()
    made.dev(checkpoint)
    assert sum(documents) == 2 * sampled


def test_what_is_worked_on_is_not_removed(made, monkeypatch):
    """The checkpoint and its vectors, though nobody else needs them any more."""
    encode_shards, left = snapshots.encode_shards, []

    def pruned_meanwhile(folder, *rest, **hold):
        encode_shards(folder, *rest)
        prune_stage(made.run, "a", made.recipe, (), ())
        left.append((made.run.checkpoint("a", 2).exists(), folder.exists()))
        return encode_shards(folder, *rest)

    monkeypatch.setattr(snapshots, "encode_shards", pruned_meanwhile)
    checkpoint, _ = made.checkpoint(2), made.checkpoint(4, change=0.05)
    made.tables(checkpoint)
    assert left == [(True, True)]
    prune_stage(made.run, "a", made.recipe, (), ())
    assert [path.name for path in made.run.checkpoints.iterdir()] == ["a-00000004"]
    assert not list(made.run.scratch.iterdir())


@pytest.mark.parametrize("kind", ["tables", "dev"])
def test_a_checkpoint_that_has_gone_is_named(made, kind):
    checkpoint = made.checkpoint(2)
    (checkpoint.folder / MANIFEST).unlink()
    message = f"a-00000002 was removed before its {PRODUCT_NAMES[kind]} was made"
    with pytest.raises(CheckpointRemoved, match=message):
        made.make(kind, checkpoint)


def products(world: World, recipe: Recipe, folder: Path) -> dict:
    """What the processes of a world make of the checkpoint in `folder`; a missing one is missed by all of
    them."""
    made, filtered, mask = Made(recipe, folder, world), [], Duplicates.mask

    def counted(self, candidates):
        filtered.append(len(candidates.rows))
        return mask(self, candidates)

    Duplicates.mask = counted
    checkpoint = Checkpoint.open(made.run.checkpoint("a", 0))
    with pytest.raises(CheckpointRemoved) as missed:
        made.refresher.make(RefreshRequest("tables", "a", 3, "w"))
    generation = made.tables(checkpoint)
    held = made.refresher._snapshot
    names = [(key, name) for key in generation.tables for name in (*PER_ANCHOR, "promoted")]
    found = {(*key, name): getattr(generation.tables[key], name) for key, name in names}
    arrays = {key: np.asarray(array) for key, array in found.items() if array is not None}
    names = map(table_name, generation.tables)
    ranks = {name: read_positive_ranks(generation.folder, name) for name in names}
    tables, left = generation.report["tables"], ("margin", "positives")
    report = {name: {key: of[key] for key in of if key not in left} for name, of in tables.items()}
    return {
        "arrays": arrays,
        "ranks": {name: None if array is None else array.tolist() for name, array in ranks.items()},
        "report": report,
        "dev": made.dev(checkpoint)["value"],
        "missed": str(missed.value),
        "filtered": set(filtered),
        "held": (held.rankings, "query_vectors" in vars(held)),
    }


@pytest.mark.parametrize("then, more", [("promote", {}), ("drop", {"document": ON_QUERIES})])
def test_processes_make_what_one_makes_each_its_share(run_processes, small_recipe, tmp_path, then, more):
    hits = [("pink-tiger", 3), ("red-horse", 2.5), ("red-apple", 1)]
    lines = [f"train-{query} Q0 {hit} 1 {score} t\n" for query in range(15) for hit, score in hits]
    (tmp_path / "ranked.trec").write_text("".join(reversed(lines)))
    judging = {"kind": "teacher", "teacher": "student", "margin": 0.0, "then": then}
    ann = {"kind": "ann", "top_k": 6, "filters": ["duplicates", judging]}
    mixed = [ann, {"kind": "lookahead", "top_k": 4}]
    mix = {"kind": "mix", "weights": [0.5, 0.5], "top_k": 4, "sources": mixed}
    ranked = {"kind": "ranking", "file": str(tmp_path / "ranked.trec"), "top_k": 2}
    stage = {**STAGE, "terms": {"query": {"negatives": [mix, ranked]}, **more}}
    recipe = small_recipe({"a": stage}, encoding={"precision": "fp32", "tokens_per_batch": 64})
    made = {}
    for size in (1, 2):
        Made(recipe, tmp_path / f"{size}").checkpoint(0)
        made[size] = run_processes(size, products, recipe, tmp_path / f"{size}")
    [one], both = made[1], made[2]
    assert one["filtered"] == {15} and [end["filtered"] for end in both] == [{8}, {7}]
    assert len(one["arrays"]) == (8 if then == "promote" else 10)
    weights = Checkpoint.open(RunDir(tmp_path / "1").checkpoint("a", 0)).weights
    assert one["report"]["query.0"]["judged_by"] == {"student": weights}
    assert all("judged_by" not in report for name, report in one["report"].items() if name != "query.0")
    for end in both:
        assert end["arrays"].keys() == one["arrays"].keys()
        for key, array in one["arrays"].items():
            np.testing.assert_allclose(end["arrays"][key], array, rtol=1e-5, err_msg=str(key))
        same = ("ranks", "report", "dev", "held")
        assert {key: end[key] for key in same} == {key: one[key] for key in same}
        assert end["held"] == ({}, False) and "a-00000003 was removed" in end["missed"]
