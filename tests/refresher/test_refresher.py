"""refresh(checkpoint) on a small model: its tables, reports and dev measure against slow loops over the checkpoint's vectors."""

import statistics

import numpy as np
import pytest

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import load_encoder, start_encoder
from pyserini_ance.experiment.prepare import read_collection, tokenise
from pyserini_ance.refresher.refresher import Refresher
from pyserini_ance.runs.checkpoint import Place, publish_checkpoint
from pyserini_ance.runs.generation import mined_sources, open_tables
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.storage.publish import read_manifest

KEY, DEPTH = ("query", 0), 5
STAGE = {
    "steps": 4,
    "batch_queries": 4,
    "optimizer": {"learning_rate": 1e-3},
    "terms": {"query": {"negatives": [{"kind": "ann", "depth": DEPTH}]}},
    "refresh": {"every_steps": 2},
    "evaluate": {"every_steps": 2, "measure": "RR@10"},
}


class Made:
    """A checkpoint, its refresher, and its vectors by the plain encoder."""

    def __init__(self, recipe, folder):
        self.recipe, self.run = recipe, RunDir(folder)
        self.data = tokenise(recipe, read_collection(recipe))
        self.refresher = Refresher(recipe, self.data, self.run, "cpu", World())
        self.checkpoint = self.checkpoint_of(0)
        self.sources = mined_sources(recipe.stages["a"])

    def checkpoint_of(self, step: int, change: float = 0.0):
        encoder = start_encoder(self.recipe.encoder, 0)
        for parameter in encoder.towers.parameters():
            parameter.data += change * parameter.data.sign()
        return publish_checkpoint(self.run, encoder, None, Place("a", step))

    def refresh(self, checkpoint, step: int, previous=(), measure: bool = False):
        return self.refresher.refresh(checkpoint, "a", step, self.sources, dict(previous), measure)

    def scores(self, checkpoint, split: str = "train") -> np.ndarray:
        """(queries, 30)"""
        encoder, collection = load_encoder(checkpoint.encoder), self.data.collection
        queries = collection.split(split).queries
        documents = encoder.encode(collection.documents.take(range(30)), "document")
        return encoder.encode(queries.take(range(len(queries))), "query") @ documents.T


@pytest.fixture
def made(small_recipe, tmp_path) -> Made:
    return Made(small_recipe({"a": STAGE}), tmp_path)


def test_tables_are_the_best_that_are_no_positives(made):
    refreshed = made.refresh(made.checkpoint, 0)
    table, scores = refreshed.tables[KEY], made.scores(made.checkpoint)
    for query, (candidates, found) in enumerate(zip(table.candidates.tolist(), table.scores, strict=True)):
        positives = made.data.split.qrels.relevant(query).tolist()
        ranked = [row for row in np.argsort(-scores[query]).tolist() if row not in positives]
        assert candidates == ranked[:DEPTH]
        assert found == pytest.approx(scores[query][candidates], rel=1e-4)


def test_tables_are_published_with_what_they_were_mined_from(made):
    refreshed = made.refresh(made.checkpoint, 0)
    assert refreshed.folder == made.run.generation("a", 0)
    manifest = read_manifest(refreshed.folder)
    about = {"stage": "a", "step": 0, "weights": made.checkpoint.weights, "collection": made.data.collection.digest}
    assert {key: manifest[key] for key in about} == about
    opened = open_tables(refreshed.folder, made.checkpoint.weights, made.data.collection.digest)
    assert opened[KEY].candidates.tolist() == refreshed.tables[KEY].candidates.tolist()
    assert made.refresh(made.checkpoint, 0).tables[KEY].candidates.tolist() == opened[KEY].candidates.tolist()


def test_the_report_agrees_with_a_slow_loop(made):
    first = made.refresh(made.checkpoint, 0)
    other = made.checkpoint_of(2, change=0.05)
    refreshed = made.refresh(other, 2, first.tables)
    report, table, scores = refreshed.reports["query.0"], refreshed.tables[KEY], made.scores(other)
    width = DEPTH + 2  # the first query has two positives, so that two more are fetched

    ranks, margins, dropped, new = [], [], 0, []
    for query in range(15):
        positives = made.data.split.qrels.relevant(query).tolist()
        ranking = np.argsort(-scores[query]).tolist()[:width]
        places = [ranking.index(row) + 1 for row in positives if row in ranking]
        ranks.append(min(places, default=None))
        dropped += len(places)
        candidates = table.candidates[query].tolist()
        margins.append(max(scores[query][row] for row in positives) - statistics.fmean(scores[query][row] for row in candidates))
        new += [row not in first.tables[KEY].candidates[query] for row in candidates]
    assert report["positive_ranks"] == ranks and None in ranks and any(ranks)
    assert (report["candidates"], report["short_queries"]) == (15 * DEPTH, 0)
    assert report["dropped"] == table.dropped == {"known positives": dropped}
    assert report["new_share"] == pytest.approx(statistics.fmean(new), abs=1e-4) and report["new_share"] > 0
    assert report["margin"]["mean"] == pytest.approx(statistics.fmean(margins), abs=1e-3)
    assert report["margin"]["p50"] == pytest.approx(statistics.median(margins), abs=1e-3)
    deciles = statistics.quantiles(margins, n=10, method="inclusive")
    assert (report["margin"]["p10"], report["margin"]["p90"]) == pytest.approx((deciles[0], deciles[-1]), abs=1e-3)
    assert first.reports["query.0"]["new_share"] is None


def test_the_dev_measure_is_that_of_the_ranking(made):
    refreshed = made.refresh(made.checkpoint, 0, measure=True)
    scores, qrels = made.scores(made.checkpoint, "dev"), made.data.collection.split("dev").qrels
    ranks = [np.argsort(-scores[query]).tolist().index(qrels.relevant(query)[0]) + 1 for query in range(5)]
    assert refreshed.dev == pytest.approx(statistics.fmean(1 / rank if rank <= 10 else 0 for rank in ranks))
    assert 0 < refreshed.dev < 1


def test_mining_and_measuring_share_one_encoding(made, monkeypatch):
    from pyserini_ance.negatives import snapshot

    encoded = []
    encode_shards = snapshot.encode_shards
    monkeypatch.setattr(snapshot, "encode_shards", lambda *args: (encoded.append(args), encode_shards(*args))[1])
    refreshed = made.refresh(made.checkpoint, 0, measure=True)
    assert len(encoded) == 1
    assert {"load", "encode_documents", "encode_queries", "search", "mine ann"} <= set(refreshed.seconds)


def test_too_few_candidates_stop_the_run_and_publish_nothing(small_recipe, tmp_path):
    terms = {"query": {"negatives": [{"kind": "ann", "depth": 2, "per_query": 3}]}}
    made = Made(small_recipe({"a": {**STAGE, "terms": terms}}), tmp_path)
    with pytest.raises(ValueError, match=r"15 of 15 queries have fewer than per_query=3 candidates, first train-0 \(2\)"):
        made.refresh(made.checkpoint, 0)
    assert not made.run.generation("a", 0).exists()
