from pathlib import Path

import pytest
import torch
from helpers.stages import RANDOM, make_stage, recipe_file

from pyserini_ance.data.trec import read_run
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.pipeline.preparation import read_collection
from pyserini_ance.recipe.load import load

LTRE = make_stage({"kind": "live", "top_k": 8}, steps=5, trainable="query_tower")
LTRE["terms"]["query"]["loss"] = {"kind": "ranknet", "scale": 0.1}
LTRE["evaluate"] = {"every_steps": 2, "sample_documents": 20, "keep_best": False}
STAGES = {"warm": make_stage(RANDOM), "ltre": LTRE}


@pytest.fixture(scope="module")
def recipe(small_recipe, tmp_path_factory) -> Path:
    test = {"precision": "fp32", "measures": ["RR@10"]}
    made = small_recipe(STAGES, encoding={"precision": "fp32"}, final_evaluation=test)
    return recipe_file(made, tmp_path_factory.mktemp("recipe"))


def test_ltre_encodes_no_document_and_exports_the_start_models_beside_its_queries(train, recipe, tmp_path):
    """Thirty documents: once with the untrained model, for its row, once with the warm-up's; dev, closing row
    and index take these. The proofs of the start and of the export encode all of them and five texts more.
    """
    folder, counted = tmp_path / "run", tmp_path / "counted"
    train(folder, fault="count_encoded_documents", stage=str(counted), step=0)
    assert sorted(map(int, counted.read_text().split())) == sorted([*range(30), *range(35)] * 2)
    exported = load_encoder(folder / "model")
    warm = load_encoder(folder / "checkpoints" / "warm-00000004" / "encoder")
    assert not exported.towers.tied
    for side, same in (("documents", True), ("queries", False)):
        ours, theirs = (getattr(encoder.towers, side).parameters() for encoder in (exported, warm))
        assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True)) is same, side
    collection = read_collection(load(recipe))
    queries, documents = collection.split("test").queries, collection.documents
    vectors = exported.encode(documents.take(range(30)), "document")
    scores = exported.encode(queries.take(range(5)), "query") @ vectors.T
    found = read_run(folder / "run.test.trec")
    for query, of_query in zip(queries.ids, scores, strict=True):
        expected = dict(zip(documents.ids, of_query.tolist(), strict=True))
        assert found[query] == pytest.approx(expected, abs=1e-4)
