import time

import numpy as np
import pytest
from helpers.saved_model import save_model, view
from helpers.small_set import ONE_STEP

from pyserini_ance.distributed.world import World
from pyserini_ance.encoders import hardware as precision
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.negatives import checkpoint_vectors
from pyserini_ance.negatives.checkpoint_vectors import CheckpointVectors


@pytest.fixture
def recipe(small_recipe, tmp_path):
    encoding = {"precision": "fp32", "tokens_per_batch": 64}
    return save_model(small_recipe({"a": ONE_STEP}, encoding=encoding), tmp_path)


@pytest.fixture
def vectors(recipe, tmp_path):
    return view(CheckpointVectors, World(), recipe, tmp_path)


def test_vectors_are_those_of_the_saved_encoder(vectors):
    encoder, collection = load_encoder(vectors.model), vectors.data.collection
    documents = encoder.encode(collection.documents.take(range(30)), "document")
    queries = encoder.encode(collection.split("train").queries.take(range(15)), "query")
    assert np.allclose(vectors.document_vectors[:], documents, atol=1e-5)
    assert np.allclose(vectors.query_vectors, queries, atol=1e-5)
    assert set(vectors.seconds) == {"load", "encode_documents", "encode_queries"}


def test_documents_are_held_when_a_gpu_encodes_them_and_not_on_a_cpu(vectors, monkeypatch):
    asked = []
    monkeypatch.setattr(checkpoint_vectors, "encode_shards", lambda *_, **more: asked.append(more))
    vars(vectors).update(encoder=None, precision="fp32")
    for device in ("cpu", "cuda:0"):
        vectors.device = device
        assert vectors.document_vectors is None
        del vars(vectors)["document_vectors"]
    assert asked == [{"hold": False}, {"hold": True}]


def test_vectors_of_selected_rows_equal_those_of_all(vectors):
    rows = np.array([4, 29, 0])
    assert np.allclose(vectors.encode_documents(rows)[0], vectors.document_vectors[rows], atol=1e-5)
    selected = vectors.encode_queries("train", rows[[0, 2]])
    assert np.allclose(selected, vectors.query_vectors[[4, 0]], atol=1e-5)


def test_documents_are_not_encoded_again_when_only_the_query_tower_differs(vectors):
    first, asked = np.array(vectors.document_vectors[:]), []
    settings = (vectors.data, vectors.encoding, vectors.scratch, "cpu", World())
    again = CheckpointVectors(vectors.model, "another hash", *settings, document_weights="hash")
    again.encoder.encode_rows = lambda tokens, rows, *_: asked.extend(rows) or ()
    assert np.array_equal(again.document_vectors[:], first) and asked == []


def test_seconds_of_a_part_within_a_part_count_once(vectors, monkeypatch):
    ticks = iter([0.0, 10.0, 13.0, 20.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    with vectors.timed("encode_documents"), vectors.timed("load"):
        pass
    assert vectors.seconds == {"load": 3.0, "encode_documents": 17.0}


def precision_of(world, recipe, folder) -> str:
    precision.cpu_has_fast_bf16 = lambda: world.is_main
    return view(CheckpointVectors, world, recipe, folder, precision="auto").precision


def test_processes_agree_on_the_precision(run_processes, recipe, tmp_path):
    assert run_processes(2, precision_of, recipe, tmp_path) == ["bf16", "bf16"]
