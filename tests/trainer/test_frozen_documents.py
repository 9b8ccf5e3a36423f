"""A live step against its definition: each text alone, numpy search, labels and loss by loops."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.stages import changed
from helpers.step_gradients import compute_gradients, gradients_of, vector_alone

from pyserini_ance.data.collection import Qrels
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.negatives.snapshot import Snapshot
from pyserini_ance.pipeline.preparation import read_collection, tokenize
from pyserini_ance.runs.checkpoint import Checkpoint, TrainingProgress, publish_checkpoint
from pyserini_ance.runs.rundir import RunDir
from pyserini_ance.trainer.batch import plan_batch
from pyserini_ance.trainer.frozen_documents import FrozenDocuments
from pyserini_ance.trainer.step import BatchEncoder

LOSS = {"kind": "nll", "scale": 0.2}
TWO_RANDOM = {"kind": "random", "num_negatives": 2}
TERMS = {
    "replaced": {"negatives": [{"kind": "live", "top_k": 4}], "loss": LOSS},
    "mixed": {"negatives": [TWO_RANDOM, {"kind": "live", "top_k": 3}], "loss": LOSS},
    "step": {"in_batch_negatives": True, "negatives": [{"kind": "live", "top_k": 3}], "loss": LOSS},
    "looked up": {"negatives": [{"kind": "random", "num_negatives": 3}], "loss": LOSS},
}


@pytest.fixture(scope="module")
def recipe(small_recipe):
    stage = {"trainable": "query_tower", "steps": 6, "batch_queries": 5, "save_every_steps": 2}
    stage |= {"optimizer": {"learning_rate": 1e-3}, "terms": TERMS}
    return small_recipe({"a": stage}, seed=3)


def with_terms(recipe, *names: str, **changes):
    stage = recipe.stages["a"]
    stage = stage.model_copy(update={"terms": {name: stage.terms[name] for name in names}, **changes})
    return recipe.model_copy(update={"stages": {"a": stage}})


@pytest.fixture(scope="module")
def start(recipe, tmp_path_factory) -> Checkpoint:
    run, progress = RunDir(tmp_path_factory.mktemp("start")), TrainingProgress("initial", 0)
    return publish_checkpoint(run, initial_encoder(recipe.encoder, 0), None, progress)


def fixed(recipe, data, start: Checkpoint, scratch, world: World = World()) -> FrozenDocuments:
    scratch.mkdir(exist_ok=True)
    snapshot = Snapshot(start.encoder, start.weights, data, recipe.encoding, scratch, "cpu", world)
    return FrozenDocuments(recipe.stages["a"], snapshot, 0)


def step(world, recipe, folder, scratch, tokens: int = 128) -> tuple[dict, dict, dict, dict]:
    """Losses, the query tower's gradients by name, the document tower's, and the hits; without dropout."""
    stage, data = recipe.stages["a"], tokenize(recipe, read_collection(recipe))
    start = Checkpoint.open(folder)
    encoder = load_encoder(start.encoder)
    encoder.untie()
    encoder.towers.freeze("document")
    encoder.towers.eval()
    documents = fixed(recipe, data, start, scratch, world)
    runner = BatchEncoder(stage, data, encoder, nullcontext, tokens, (3, 0), world, documents)
    losses = compute_gradients(runner, plan_batch(stage, 0, 0, 3, data.anchor_sets, {}), 0)
    gradients = [gradients_of(one) for one in (encoder.towers.queries.transformer, encoder.towers.documents)]
    return losses, *gradients, documents.pop_metrics().get("found")


def reference(recipe, start: Checkpoint, name: str) -> tuple[float, dict[str, torch.Tensor], list[float]]:
    """The loss, the gradients, and RR and R of what was found."""
    stage, data = recipe.stages["a"], tokenize(recipe, read_collection(recipe))
    model = load_encoder(start.encoder).towers.queries.transformer
    batch, qrels = plan_batch(stage, 0, 0, 3, data.anchor_sets, {}), data.split.qrels
    with torch.no_grad():
        rows = range(len(data.documents))
        documents = torch.stack([vector_alone(model, data.documents, row, 32) for row in rows])
    queries, pools, ranks, recalls = [], [], [], []
    for i, q in enumerate(batch.queries.tolist()):
        queries.append(vector_alone(model, data.queries["train"], q, 24))
        drawn, relevant = batch.terms[name].negatives[i].tolist(), qrels.relevant(q).tolist()
        positive = int(batch.terms[name].positives[i, 0])
        depth = next((source.top_k for source in stage.terms[name].negatives if source.live), 0)
        found = (documents @ queries[-1].detach()).argsort(descending=True)[:depth].tolist()
        hits = [rank for rank, row in enumerate(found, 1) if row in relevant]
        ranks.append(1 / hits[0] if hits else 0.0)
        recalls.append(len(hits) / len(relevant))
        if depth and not hits:
            found = [*found[:-1], positive]
        pools.append([*(found if depth else [positive]), *drawn])
    each = []
    for i, q in enumerate(batch.queries.tolist()):
        known = set(qrels.relevant(q).tolist())
        pool = [row for rows in pools for row in rows] if name == "step" else pools[i]
        score = {row: torch.exp(0.2 * queries[i] @ documents[row]) for row in pool}
        negatives = sum(score[row] for row in pool if row not in known)
        losses = [-torch.log(score[row] / (score[row] + negatives)) for row in pools[i] if row in known]
        each.append(sum(losses) / len(losses))
    loss = sum(each) / len(each)
    loss.backward()
    return loss.item(), gradients_of(model), [sum(ranks) / len(ranks), sum(recalls) / len(recalls)]


@pytest.mark.parametrize("name", TERMS)
def test_a_step_equals_a_written_out_reference(recipe, start, tmp_path, name):
    for chunk_queries, tokens in ((None, 128), (2, 128), (None, 30)):
        one = with_terms(recipe, name, chunk_queries=chunk_queries)
        losses, gradients, of_documents, found = step(World(), one, start.folder, tmp_path, tokens)
        expected, expected_gradients, measured = reference(one, start, name)
        assert losses == {name: pytest.approx(expected, rel=1e-4)}
        assert of_documents == {}
        largest = max(float(g.abs().max()) for g in expected_gradients.values())
        torch.testing.assert_close(gradients, expected_gradients, rtol=1e-3, atol=1e-5 * largest)
        if name != "looked up":
            (values,) = found.values()
            assert list(values.values()) == pytest.approx(measured, abs=1e-6)


@pytest.mark.parametrize("chunk_queries", [None, 1])
def test_two_processes_agree_with_one(recipe, start, tmp_path, run_processes, chunk_queries):
    recipe = with_terms(recipe, "replaced", "step", chunk_queries=chunk_queries)
    expected, of_one, _, found = step(World(), recipe, start.folder, tmp_path / "1")
    steps = run_processes(2, step, recipe, start.folder, tmp_path / "2")
    for losses, gradients, of_documents, also_found in steps:
        assert losses == pytest.approx(expected, rel=1e-5) and also_found == found
        assert of_documents == {}
        torch.testing.assert_close(gradients, of_one, rtol=1e-3, atol=1e-5)


def test_vectors_without_room_on_a_gpu_are_searched_in_blocks(recipe, start, tmp_path, monkeypatch, caplog):
    recipe = with_terms(recipe, "replaced")
    recipe = changed(recipe, "encoding.search=torch")
    data = tokenize(recipe, read_collection(recipe))
    held = fixed(recipe, data, start, tmp_path)
    monkeypatch.setattr("pyserini_ance.vectors.search.has_room", lambda *_: False)
    streamed = fixed(recipe, data, start, tmp_path)
    assert held.whole is not None and streamed.whole is None and "do not fit" in caplog.text
    queries = torch.randn(3, held.vectors.shape[1], generator=torch.Generator().manual_seed(0))
    one, other = (documents.searches["flat"](queries, 7) for documents in (held, streamed))
    assert all(map(torch.equal, one, other))


def test_the_overlap_with_bm25_is_recorded_where_bm25_has_ranked(recipe, start, tmp_path):
    recipe = with_terms(recipe, "replaced")
    data = tokenize(recipe, read_collection(recipe))
    ids, queries = data.collection.documents.ids, data.split.queries.ids
    ranked = (f"{query} Q0 {ids[row]} 1 {30 - row} t\n" for query in queries for row in range(3))
    (tmp_path / "bm25.trec").write_text("".join(ranked))
    data.training_rankings["bm25"] = tmp_path / "bm25.trec"
    documents = fixed(recipe, data, start, tmp_path / "scratch")
    documents.measure("replaced.0", np.array([0]), np.array([[9, 1, 0, 2]]), 1.0, documents.known_positives)
    assert documents.pop_metrics()["found"]["replaced.0"]["BM25 overlap@3"] == pytest.approx(2 / 3, abs=1e-6)


def test_terms_share_live_candidates_which_are_measured_by_the_steps_own_positives(recipe, start, tmp_path):
    """A question that trains with a positive that a refresh has found has no judged one."""
    recipe = with_terms(recipe, "replaced", "looked up")
    new = {"shares": "negatives_from: replaced, in_batch_negatives: true", "own": "negatives_from: looked up"}
    recipe = changed(recipe, *(f"stages.a.terms.{name}={{{text}}}" for name, text in new.items()))
    data, stage = tokenize(recipe, read_collection(recipe)), recipe.stages["a"]
    documents = fixed(recipe, data, start, tmp_path / "scratch")
    batch, queries = plan_batch(stage, 0, 0, 3, data.anchor_sets, {}), len(data.split.queries)
    asked = torch.randn(len(batch.unique["query"]), 32, generator=torch.Generator().manual_seed(1))
    known = Qrels.of(range(queries), [0] * queries, [1] * queries, queries).positives
    documents.known_positives = Qrels.of([], [], [], queries).positives
    own = replace(batch.terms["own"], teacher=np.ones(1))
    batch = replace(batch, terms={**batch.terms, "own": own})
    terms = documents.add_live_candidates(batch, asked, 1.0, known)[0].terms
    assert terms["own"] is own and terms["looked up"] is batch.terms["looked up"]
    assert terms["shares"] is terms["replaced"] and terms["shares"].negatives.shape[1] == 4
    share = documents.searches["flat"](asked[: len(batch.queries)], 4)[1].eq(0).any(1).float().mean()
    assert documents.pop_metrics()["found"]["replaced.0"]["R@4"] == pytest.approx(float(share), abs=1e-6)


def compressed(world, recipe, folder, scratch) -> tuple:
    """A live step's hits with a compressed index, what faiss finds in its file, the vectors scored."""
    import faiss

    data = tokenize(recipe, read_collection(recipe))
    documents, stage = fixed(recipe, data, Checkpoint.open(folder), scratch, world), recipe.stages["a"]
    batch = plan_batch(stage, 0, 0, 3, data.anchor_sets, {})
    queries = torch.randn(len(batch.unique["query"]), 32, generator=torch.Generator().manual_seed(1))
    whole, vectors = documents.add_live_candidates(batch, queries, 1.0)
    (path,) = scratch.glob("*/index")
    rows = batch.terms["replaced"]
    asked = queries.numpy()[batch.positions("query", rows.anchors)]
    found = faiss.read_index(str(path)).search(asked, 4)[1]
    stored = np.asarray(documents.vectors[whole.unique["document"]])
    return whole.terms["replaced"].negatives, found, rows, vectors.numpy(), stored


def test_a_compressed_index_retrieves_and_the_vectors_score(recipe, start, tmp_path, run_processes):
    index = "stages.a.terms.replaced.negatives.0.index='IVF1,PQ4x4'"
    recipe = changed(with_terms(recipe, "replaced"), index)
    qrels = read_collection(recipe).split("train").qrels
    results = run_processes(2, compressed, recipe, start.folder, tmp_path)
    for negatives, found, rows, vectors, stored in results:
        lines = zip(negatives.tolist(), found.tolist(), rows.anchors, rows.positives[:, 0], strict=True)
        for taken, retrieved, query, positive in lines:
            relevant = set(retrieved) & set(qrels.relevant(query).tolist())
            assert taken == (retrieved if relevant else [*retrieved[:-1], positive])
        np.testing.assert_array_equal(vectors, stored)
