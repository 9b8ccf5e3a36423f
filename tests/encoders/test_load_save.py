import json
import os

import numpy as np
import pytest
import torch
from helpers.released_checkpoints import assert_equal_vectors, with_moved_documents
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from pyserini_ance.encoders.config import SIDE_FILE, config_of, tower_folder
from pyserini_ance.encoders.initial import initial_encoder, initial_tokenizer
from pyserini_ance.encoders.load_save import continue_encoder, load_encoder, load_tower
from pyserini_ance.encoders.sentence_transformers_files import MODEL, MODULES

DOCUMENT = {"length_tokens": 48, "template": "{title}: {text}"}
TOKENIZATION = {"lowercase": True, "query": {"length_tokens": 24}, "document": DOCUMENT}
MEAN = {"pooling": "mean", "tokenization": TOKENIZATION}


@pytest.fixture
def checkpoint(start, tiny_bert, saved):
    return saved(start(tiny_bert, **MEAN))


def test_the_side_file_says_what_hugging_face_files_leave_out(checkpoint, tiny_bert, config):
    settings = config(tiny_bert, **MEAN)
    side = json.loads((checkpoint / SIDE_FILE).read_text())
    made = settings.model_copy(update={"layer_norm": False, "normalize": False})
    modules = dict.fromkeys(("query", "document"), "Transformer Pooling")
    expected = {"format": 2, "dimension": 32, "modules": modules, **made.model_dump(mode="json")}
    weights = {"model", "query", "document", "base"}  # no path of a machine is published
    assert side == {key: value for key, value in expected.items() if key not in weights}
    assert side["tokenization"]["query"] == {"length_tokens": 24, "template": "{text}"}
    loaded, started = load_encoder(checkpoint), initial_tokenizer(settings)
    assert loaded.config == made.model_copy(update={"model": str(checkpoint)})
    assert loaded.tokenizer.key("document") == started.key("document")
    assert loaded.tokenizer.specials == started.specials


def test_a_folder_that_is_damaged_or_not_ours_is_refused(checkpoint, tiny_bert):
    side = json.loads((checkpoint / SIDE_FILE).read_text())
    for changed, error, message in (
        ({"format": 1}, RuntimeError, "has format 1; this version reads 2"),
        ({"whitening": True}, ValueError, "unknown key 'whitening'"),
    ):
        (checkpoint / SIDE_FILE).write_text(json.dumps({**side, **changed}))
        with pytest.raises(error, match=message):
            load_encoder(checkpoint)
    (checkpoint / SIDE_FILE).write_text(json.dumps(side))
    os.truncate(checkpoint / "model.safetensors", 1000)
    for load in (load_encoder, lambda folder: initial_encoder(config_of(folder), 0)):
        with pytest.raises(RuntimeError, match=rf"{checkpoint}/model.safetensors is damaged"):
            load(checkpoint)
    for folder in (tiny_bert, tiny_bert / "nowhere"):
        with pytest.raises(FileNotFoundError, match=f"{SIDE_FILE} is missing: .* is not an encoder saved by"):
            load_encoder(folder)


def test_modules_that_are_not_those_that_were_saved_are_refused(start, saved, tiny_bert):
    """Nothing is drawn in their place."""
    for name, change, message in (
        (MODULES, None, "its modules is"),
        (MODULES, lambda listed: listed[:2], "its modules is {'query': 'Transformer Pooling'"),
        ("1_Pooling/config.json", lambda of: {**of, "pooling_mode": "mean"}, "its pooling is 'mean'"),
    ):
        folder = saved(start(tiny_bert, projection=8, normalize=True))
        content = json.loads((folder / name).read_text())
        (folder / name).unlink()
        if change:
            (folder / name).write_text(json.dumps(change(content)))
        for load in (load_encoder, start):
            with pytest.raises(RuntimeError, match=message):
                load(folder)


def test_a_layer_that_two_towers_get_is_not_shared(pair, saved, config):
    settings = {**MEAN, "layer_norm": True, "tied": False}
    towers = continue_encoder(config("elsewhere", **settings), saved(pair), ["layer_norm"]).towers
    towers.freeze("document")
    assert all(parameter.requires_grad for parameter in towers.queries.parameters())
    query, document = (len(list(tower.parameters())) for tower in (towers.queries, towers.documents))
    assert query == document and len(list(towers.parameters())) == query + document


OTHERS = [{"pooling": "cls"}, {"normalize": True}, {"tokenization": {**TOKENIZATION, "lowercase": False}}]
OTHERS += [{"tokenization": {**TOKENIZATION, "document": {"template": "{text}!"}}}, {"layer_norm": True}]


@pytest.mark.parametrize("settings", OTHERS)
def test_a_recipe_with_other_settings_than_the_checkpoints_is_refused(checkpoint, start, settings):
    longer = {**TOKENIZATION, "query": {"length_tokens": 32}}
    for allowed in (MEAN, {**MEAN, "dropout": 0.2}, {**MEAN, "tokenization": longer}):
        started = start(checkpoint, **allowed)
    assert started.length_tokens("query") == 32
    (key,) = settings
    message = f"encoder.{key} is .*, but .*{SIDE_FILE} was trained with .*; use the latter in the recipe"
    with pytest.raises(ValueError, match=message):
        start(checkpoint, **{**MEAN, **settings})


def test_what_a_recipe_leaves_out_is_that_of_the_checkpoint(checkpoint, config, records):
    left_out = config(checkpoint)
    saved = config_of(checkpoint)
    assert left_out == saved and saved.pooling == "mean" and saved.tokenization.lowercase
    lengths = config(checkpoint, tokenization={"query": {"length_tokens": 7}}).tokenization
    assert lengths.query.length_tokens == 7 and lengths.document == saved.tokenization.document
    encoder = initial_encoder(left_out, seed=1)
    np.testing.assert_array_equal(encoder.encode(records), load_encoder(checkpoint).encode(records))


def test_of_training_and_of_passages_a_recipe_takes_what_it_can(config, tiny_bert, saved, start):
    documents = {"length_tokens": 48, "passages": 2, "special_tokens": "per_document", "pad_passages": True}
    settings = {"tied": False, "dropout": 0.2, "tokenization": {"document": documents}}
    folder = saved(start(tiny_bert, **settings))
    left_out = config(folder)
    assert (left_out.tied, left_out.dropout, left_out.tokenization.document.passages) == (False, None, 2)
    first = config(folder, tokenization={"document": {"passages": 1}}).tokenization.document
    assert (first.passages, first.special_tokens, first.pad_passages) == (1, "per_passage", False)


@pytest.fixture
def pair(start, tiny_bert):
    return with_moved_documents(start(tiny_bert, tied=False, **MEAN))


def test_untied_towers_start_equal(start, tiny_bert, tiny_roberta):
    for model, more in ((tiny_bert, {}), (tiny_roberta, {"projection": 16, "layer_norm": True})):
        encoder = start(model, tied=False, **more)
        pairs = zip(encoder.towers.queries.parameters(), encoder.towers.documents.parameters(), strict=True)
        assert all(torch.equal(query, document) and query is not document for query, document in pairs)


def test_a_pair_comes_back_as_it_was_saved_and_each_tower_is_a_hugging_face_folder(pair, saved, records):
    folder = saved(pair)
    loaded = load_encoder(folder)
    assert not loaded.towers.tied and not loaded.config.tied
    assert_equal_vectors(loaded, pair, records)
    names = [MODEL, "documents", MODULES, SIDE_FILE, "queries", "router_config.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    towers = ("queries", pair.towers.queries, 24), ("documents", pair.towers.documents, 48)
    for name, tower, length in towers:
        theirs = AutoModel.from_pretrained(folder / name).state_dict()
        torch.testing.assert_close(theirs, tower.transformer.state_dict(), rtol=0, atol=0)
        assert AutoTokenizer.from_pretrained(folder / name).model_max_length == length


def test_a_tower_of_a_pair_encodes_its_own_side(pair, checkpoint, saved, records):
    folder = saved(pair)
    for side, name in (("query", "queries"), ("document", "documents")):
        assert tower_folder(folder, side) == folder / name and tower_folder(checkpoint, side) == checkpoint
        for given in (folder, folder / name):
            found = load_tower(given, side).encode(records, side)
            np.testing.assert_array_equal(found, pair.encode(records, side))
    with pytest.raises(ValueError, match=r"queries encodes a query, not a document; use .*/documents"):
        load_tower(folder / "queries", "document")


def test_queries_of_length_1_do_not_make_it_a_cosine(start, saved, tiny_bert):
    for normalize, expected in {"query": "dot", "document": "cosine", True: "cosine", False: "dot"}.items():
        folder = saved(start(tiny_bert, normalize=normalize, truncate_dim=8, **MEAN))
        assert SentenceTransformer(str(folder), device="cpu").similarity_fn_name == expected


def test_a_pair_can_be_started_from(pair, start, saved, records):
    folder = saved(pair)
    assert_equal_vectors(start(folder, tied=False, **MEAN, seed=2), pair, records)
    two = {"tied": False, "document": {"model": str(folder / "queries")}, **MEAN}
    crossed = start(folder / "documents", **two, seed=2)
    alone = load_tower(folder, "document").encode(records, "query")
    np.testing.assert_array_equal(crossed.encode(records, "query"), alone)
    with pytest.raises(ValueError, match=r"has two towers; set encoder.tied=false, or start from .*/queries"):
        start(folder, tied=True, **MEAN, seed=2)
