"""Recipes of `_methods/asymmetric`: a small query tower over documents that never change."""

import numpy as np
import pytest
import yaml
from helpers.run_outcome import outcome

from pyserini_ance.data.trec import read_run
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.pipeline.preparation import read_collection
from pyserini_ance.recipe.load import dump, load
from pyserini_ance.storage.files import read_json

STAGE = {"steps": 4, "batch_queries": 4, "optimizer": {"learning_rate": 1e-2}, "evaluate": None}
SETTINGS = {"precision": "fp32", "measures": ["RR@10"]}


@pytest.fixture(scope="module")
def recipe(small_recipe, tmp_path_factory):
    folder, stage = tmp_path_factory.mktemp("recipe"), {**STAGE, "terms": {"q": {"in_batch_negatives": True}}}
    small = yaml.safe_load(dump(small_recipe({"a": stage}, final_evaluation=SETTINGS)))
    kept = {key: small[key] for key in ("data", "cache", "bm25", "threads", "device")}
    encoder = {key: small["encoder"][key] for key in ("model", "pooling", "tokenization")}
    made = {"extends": "_methods/asymmetric", **kept, "encoder": {**encoder, "query": {"layers": [0]}}}
    made["data"]["train_queries"] = {"from": "crops", "split": "crops", "words": [2, 3]}
    made |= {"stage_defaults": STAGE, "encoding": {"precision": "fp32"}, "final_evaluation": SETTINGS}
    path = folder / "asymmetric.yaml"
    path.write_text(yaml.safe_dump(made))
    return path


def test_the_small_tower_searches_the_vectors_of_the_whole_model(undisturbed, recipe):
    model, collection = load_encoder(undisturbed / "model"), read_collection(load(recipe))
    layers = [len(model.towers.tower(side).transformer.encoder.layer) for side in ("query", "document")]
    assert layers == [1, 2]
    start = load_encoder(undisturbed / "checkpoints" / "initial-00000000" / "encoder")
    texts = collection.documents.take(range(len(collection.documents)))
    vectors = model.encode(texts, "document")
    np.testing.assert_array_equal(vectors, start.encode(texts, "document"))
    queries = collection.split("test").queries
    scores = model.encode(queries.take(range(len(queries))), "query") @ vectors.T
    found = read_run(undisturbed / "run.test.trec")
    for query, of_query in zip(queries.ids, scores.tolist(), strict=True):
        expected = dict(zip(collection.documents.ids, of_query, strict=True))
        assert found[query] == pytest.approx({id: expected[id] for id in found[query]}, abs=1e-4)
    exported = read_json(undisturbed / "measures.json")["export"]
    assert all("--encoder-class auto" in " ".join(exported[side]) for side in ("queries", "documents"))
    assert exported["differences"]["sentence-transformers"]["share"] < 1e-5


def test_a_run_that_is_killed_in_either_stage_resumes_to_bitwise_the_same(train, undisturbed, tmp_path):
    folder = tmp_path / "run"
    for number, stage in enumerate(("vectors", "live")):
        flags = ["--resume"] * (number > 0)
        train(folder, *flags, code=-9, fault="kill_in_checkpoint", stage=stage, step=4)
    train(folder, "--resume")
    assert outcome(folder) == outcome(undisturbed)
