"""A run with all settings of small vectors, from training to the exported folder."""

import numpy as np
import pytest
from helpers.stages import ANN, changed, make_stage

from pyserini_ance.data.trec import read_run
from pyserini_ance.pipeline import experiment
from pyserini_ance.pipeline.preparation import read_collection
from pyserini_ance.pipeline.results import Run

SETTINGS = (
    "stages.only.terms.query.dimensions={16: 1, 4: 0.5}",
    "encoding.search=4",
    "encoder.truncate_dim=16",
    "encoder.normalize=true",
    "final_evaluation.rows=[]",
    'final_evaluation.indexes=["Truncate4,L2norm,SQ8"]',
)


def test_a_run_trains_mines_measures_and_exports_small_vectors(small_recipe, tmp_path):
    from sentence_transformers import SentenceTransformer

    recipe = changed(small_recipe({"only": make_stage(ANN, refresh={"every_steps": 2})}), *SETTINGS)
    experiment.train(recipe, tmp_path / "run")
    run, collection = Run(tmp_path / "run"), read_collection(recipe)
    assert [row["bytes a document"] for row in run.table] == [4 * 16, 4]
    assert all(np.isfinite(step["loss"]) for step in run.metrics("step"))

    model, queries = SentenceTransformer(str(run.model), device="cpu"), collection.split("test").queries
    asked = model.encode_query(list(queries.columns["text"]))
    scores = model.similarity(asked, model.encode_document(list(collection.documents.columns["text"])))
    rows = {id: row for row, id in enumerate(collection.documents.ids)}
    for query, own in zip(queries.ids, scores.tolist(), strict=True):
        hits = read_run(run.directory / "run.test.trec")[query]
        assert list(hits.values()) == pytest.approx([own[rows[hit]] for hit in hits], abs=1e-5)
