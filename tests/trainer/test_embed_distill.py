"""Vectors that follow a teacher's vectors of the same texts."""

import numpy as np
import pytest
import torch
from helpers.stage_fixture import Losses, StopAt, Training
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss, MSELoss

from pyserini_ance.encoders.config import TowerStart
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.recipe.components import SettingError
from pyserini_ance.trainer.losses.embed_distill import EmbedDistill

LIVE = {"negatives": [{"kind": "live", "top_k": 4}], "loss": {"kind": "nll", "scale": 0.1}}
RANDOM = {"negatives": [{"kind": "random", "num_negatives": 3}]}
OTHERS = {"accumulated": {"own": RANDOM}, "GradCache": {"batch": {"in_batch_negatives": True}}}
TERMS = [({}, "query"), ({"texts": "candidates", **RANDOM}, "document"), ({"anchor": "document"}, "document")]


@pytest.fixture
def teacher(small_recipe):
    """Settings of another encoder: the tiny BERT with the mean of its tokens' vectors."""
    stage = {"steps": 1, "batch_queries": 2, "optimizer": {"learning_rate": 1}, "terms": {"query": RANDOM}}
    return {**small_recipe({"a": stage}).encoder.model_dump(mode="json"), "pooling": "mean"}


def follows(teacher: dict, distance_metric: str = "cosine", texts: str = "anchors", **more) -> dict:
    loss = {"kind": "embed_distill", "distance_metric": distance_metric, "texts": texts}
    return {"loss": loss, "teacher": {"kind": "encoder", "encoder": teacher}, **more}


@pytest.mark.parametrize("distance_metric", ["cosine", "l2", "mse"])
def test_the_loss_is_that_of_sentence_transformers(distance_metric):
    torch.manual_seed(0)
    vectors, teacher = torch.randn(5, 8), torch.randn(5, 8)
    theirs = MSELoss(None) if distance_metric == "mse" else EmbedDistillLoss(None, distance_metric)
    expected = theirs.compute_loss_from_embeddings([vectors], [teacher])
    found = EmbedDistill(distance_metric=distance_metric)(vectors, teacher)
    torch.testing.assert_close(found.mean(), expected)


@pytest.mark.parametrize("term, side", TERMS)
def test_an_encoder_learns_the_teachers_vectors(small_recipe, tmp_path, teacher, term, side):
    """From the first loss, which is that of a slow loop where all texts are drawn."""
    settings = {"steps": 24, "batch_queries": 15, "optimizer": {"learning_rate": 3e-3}}
    settings["encoder"] = {**teacher, "pooling": "cls", "dropout": 0.0}
    terms = {"only": follows(teacher, **term)}
    training, losses = Training(small_recipe, tmp_path, terms, **settings), Losses()
    result = training.train(callbacks=[losses])
    values = [terms["only"] for terms in losses.terms]
    assert values[-1] < values[0] / 2
    assert len(training.metrics("targets")[0]["origins"]) == 1
    collection = training.data.collection
    texts = collection.split("train").queries if side == "query" else collection.documents
    texts, distances = [texts[row] for row in range(len(texts))], []
    target = initial_encoder(training.recipe.stages["a"].terms["only"].teacher.encoder, 0)
    for checkpoint in (training.start, result):
        both = load_encoder(checkpoint.encoder), target
        pairs = (torch.from_numpy(one.encode(texts, side)) for one in both)
        distances.append(float(EmbedDistill()(*pairs).mean()))
    assert distances[1] < distances[0] / 2
    if side == "query":
        assert values[0] == pytest.approx(distances[0], rel=1e-4)


@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS)
def test_chunks_give_the_weights_of_whole_batches(small_recipe, tmp_path, teacher, others):
    terms = {**others, "both": follows(teacher, "mse", "candidates", **RANDOM), "one": follows(teacher)}
    optimizer, encoders = {"kind": "lamb", "learning_rate": 1e-2}, []
    encoder = {**teacher, "pooling": "cls", "dropout": 0.0}
    for name, chunk in {"whole": {}, "chunks": {"chunk_queries": 2}}.items():
        settings = {"steps": 2, "batch_queries": 6, "optimizer": optimizer, "encoder": encoder, **chunk}
        training = Training(small_recipe, tmp_path / name, terms, **settings)
        encoders.append(load_encoder(training.train().encoder).towers.state_dict())
    start = load_encoder(training.start.encoder).towers.state_dict()
    for name, before in start.items():
        whole, chunks = (weights[name] for weights in encoders)
        # By norms: LAMB scales up gradients that are but rounding, of single numbers and of a bias of keys.
        if "key.bias" not in name:
            assert torch.dist(whole, chunks) <= 1e-3 * torch.dist(before, whole), name


def test_a_query_tower_follows_the_teacher_over_documents_that_never_change(small_recipe, tmp_path, teacher):
    """And a stage that was stopped ends with the weights of one that was not."""
    settings = {"trainable": "query_tower", "save_every_steps": 3}
    terms, losses = {"vectors": follows(teacher), "live": LIVE}, Losses()
    whole = Training(small_recipe, tmp_path / "whole", terms, **settings)
    expected = whole.train(callbacks=[losses])
    assert losses.terms[-1]["vectors"] < losses.terms[0]["vectors"]
    assert expected.document_weights == whole.start.document_weights
    alone = Training(small_recipe, tmp_path / "alone", {"vectors": follows(teacher)}, **settings).train()
    assert alone.document_weights == expected.document_weights != alone.query_weights
    stopped = Training(small_recipe, tmp_path / "stopped", terms, **settings)

    with pytest.raises(KeyboardInterrupt):
        stopped.train(callbacks=[StopAt(4)])
    assert stopped.train(resume=True).hashes == expected.hashes


def test_the_document_tower_is_the_teacher_where_none_is_named(small_recipe, tmp_path, teacher):
    """It reads queries as documents' model does, and its vectors are those of the whole model."""
    stage = {"trainable": "query_tower", "steps": 6, "optimizer": {"learning_rate": 3e-3}}
    encoder = {**teacher, "tied": False, "query": {"layers": [0]}}
    term = {"loss": {"kind": "embed_distill"}, "teacher": {"kind": "encoder"}}
    training, losses = Training(small_recipe, tmp_path, {"only": term}, encoder=encoder, **stage), Losses()
    result, texts = training.train(callbacks=[losses]), training.data.collection.split("train").queries
    config = training.recipe.encoder.model_copy(update={"tied": True, "query": TowerStart()})
    whole = initial_encoder(config, 0)
    targets = training.stage().targets["only"][np.arange(len(texts))]
    np.testing.assert_allclose(targets, whole.encode([texts[row] for row in range(len(texts))]), atol=1e-6)
    assert losses.terms[-1]["only"] < losses.terms[0]["only"]
    assert result.document_weights == training.start.document_weights


def test_a_teacher_that_cannot_be_loaded_is_refused_with_the_data(small_recipe, tmp_path, teacher):
    long = {**teacher, "tokenization": {"document": {"length_tokens": 999}}}
    with pytest.raises(ValueError, match=r"teacher: encoder.tokenization.document.length_tokens is 999, but"):
        Training(small_recipe, tmp_path, {"v": follows(long)})


def test_vectors_of_another_size_are_refused_with_two_cures(small_recipe, tmp_path, teacher):
    training = Training(small_recipe, tmp_path, {"v": follows({**teacher, "projection": 24})})
    cure = r"set encoder.projection: 24, or .* teacher.encoder.truncate_dim: 32"
    with pytest.raises(SettingError, match=rf"terms.v.teacher gives vectors of 24 .* of 32; {cure}"):
        training.stage()
    short = follows({**teacher, "truncate_dim": 16})
    encoder = {**teacher, "projection": 16}
    stage = Training(small_recipe, tmp_path / "short", {"v": short}, encoder=encoder).stage()
    assert stage.targets["v"][np.arange(3)].shape == (3, 16)
