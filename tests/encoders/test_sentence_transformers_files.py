"""Models that sentence-transformers has written, as start encoders: its own vectors, or a refusal."""

import json
from functools import partial
from typing import get_args

import numpy as np
import pytest
import torch
from helpers.released_checkpoints import assert_equal_vectors
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from transformers import BertTokenizer

from pyserini_ance.encoders.config import EncoderConfig, PoolingMode, config_of
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import continue_encoder, load_encoder
from pyserini_ance.encoders.sentence_transformers_files import MODEL
from pyserini_ance.runs.any_encoder import load_any_encoder

TEXTS = ["the quick brown fox " * 30, "A lazy Dog"]
PROMPTS = {"query": "query: ", "document": "title: "}
TEXT, TOKENIZER = "sentence_bert_config.json", "tokenizer_config.json"
ROUTES = {"routes": lambda m, layers: [m.Router({name: layers() for name in ("query", "doc")})]}


@pytest.fixture
def transformer(tiny_bert):
    """A Transformer module; weights are those of `tiny_bert` times a factor."""

    def make(length=20, factor=1.0):
        module = modules.Transformer(str(tiny_bert), max_seq_length=length)
        with torch.no_grad():
            for parameter in module.model.parameters():
                parameter.mul_(factor)
        return module

    return make


@pytest.fixture
def save(tmp_path):
    """Save a model of these modules; returns its folder."""

    def make(*layers, **settings):
        model = SentenceTransformer(modules=list(layers), device="cpu", **settings)
        folder = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        model.save(str(folder), create_model_card=False)
        return folder

    return make


def dense(bias: bool = True) -> modules.Dense:
    return modules.Dense(32, 8, bias=bias, activation_function=None)


def opened(folder):
    return SentenceTransformer(str(folder), device="cpu")


def change(folder, name, **settings):
    file = folder / name
    file.write_text(json.dumps({**(json.loads(file.read_text()) if file.exists() else {}), **settings}))
    return folder


def assert_its_vectors(folder, encoder=None, texts=TEXTS):
    model = opened(folder)
    encoder = encoder or load_any_encoder(folder)
    for side, encode in (("query", model.encode_query), ("document", model.encode_document)):
        np.testing.assert_allclose(encoder.encode(texts, side), encode(texts), atol=1e-5)
    return encoder


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_is_a_projection(transformer, save, bias):
    folder = save(transformer(), modules.Pooling(32, "cls"), dense(bias=bias), modules.Normalize())
    config = assert_its_vectors(folder).config
    assert (config.pooling, config.projection, config.normalize) == ("cls", 8, True)
    with pytest.raises(ValueError, match="32 numbers to 8, but encoder.projection is 4; set it to 8"):
        initial_encoder(EncoderConfig(model=str(folder), projection=4), seed=1)


def test_the_transformer_in_a_folder_of_its_own(transformer, save):
    """As sentence-transformers wrote up to version 1."""
    folder = save(transformer(), modules.Pooling(32, "mean"), dense(), modules.Dropout(0.1))
    (folder / "0_Transformer").mkdir()
    for file in [path for path in folder.iterdir() if path.is_file()]:
        if file.name not in ("modules.json", "config_sentence_transformers.json"):
            file.rename(folder / "0_Transformer" / file.name)
    listed = json.loads((folder / "modules.json").read_text())
    listed[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(listed))
    change(folder, "0_Transformer/sentence_bert_config.json", max_seq_length=12)
    assert assert_its_vectors(folder).config.tokenization.document.length_tokens == 12


def test_texts_are_lowered_for_a_tokenizer_that_keeps_capitals(transformer, save, tiny_bert):
    folder = save(transformer(), modules.Pooling(32, "mean"))
    BertTokenizer.from_pretrained(tiny_bert, do_lower_case=False).save_pretrained(folder)
    change(folder, "sentence_bert_config.json", do_lower_case=True, max_seq_length=20)
    encoder = assert_its_vectors(folder)
    assert encoder.config.tokenization.lowercase
    kept = load_any_encoder(change(folder, "sentence_bert_config.json", do_lower_case=False))
    assert not np.allclose(kept.encode(TEXTS[1:]), encoder.encode(TEXTS[1:]), atol=0.01)


@pytest.mark.parametrize("start", ["tiny_bert", "tiny_roberta"])
def test_blanks_and_line_ends_around_prompts_and_texts_stay(save, request, start):
    """A byte-level tokenizer has tokens for them."""
    transformer = modules.Transformer(str(request.getfixturevalue(start)), max_seq_length=40)
    prompts = {"query": " ask:\n", "document": "the title: "}
    folder = save(transformer, modules.Pooling(32, "mean"), prompts=prompts)
    texts = ["the text", " the  text ", "the\n\ntext\r\n", "\t", ""]
    encoder = assert_its_vectors(folder, texts=texts)
    titled = encoder.encode([{"title": "The title", "text": text} for text in texts[:3]], "document")
    expected = opened(folder).encode_document([f"The title {text}" for text in texts[:3]])
    np.testing.assert_allclose(titled, expected, atol=1e-5)


def test_lengths_and_prompts_by_side(transformer, save):
    folder = save(transformer(48), modules.Pooling(32, "mean"), prompts=PROMPTS)
    change(folder, "sentence_bert_config.json", query_length=8)
    tokenization = assert_its_vectors(folder).config.tokenization
    assert (tokenization.query.length_tokens, tokenization.document.length_tokens) == (8, 48)
    change(folder, "config_sentence_transformers.json", prompts={"query": "query: ", "passage": "title: "})
    assert load_any_encoder(folder).config.tokenization.document.template == "title: {title} {text}"


def test_a_default_prompt_is_that_of_neither_side(transformer, save):
    prompts = {"prompts": {"all": "all of "}, "default_prompt_name": "all"}
    folder = save(transformer(), modules.Pooling(32, "mean"))
    change(folder, "config_sentence_transformers.json", **prompts)  # as of versions before 5
    assert_its_vectors(folder)


def test_a_model_that_reads_messages_is_refused(transformer, save):
    folder = save(transformer(), modules.Pooling(32, "mean"))
    change(folder, "sentence_bert_config.json", modality_config={"text": {}, "message": {}})
    with pytest.raises(ValueError, match="that sets a chat template, which is not supported; choose another"):
        load_any_encoder(folder)


def test_older_files_say_the_same(transformer, save):
    folder = save(transformer(None), modules.Pooling(32, "cls"))
    old = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(old))
    assert assert_its_vectors(folder).config.pooling == "cls"
    assert load_any_encoder(folder, given={"pooling": "mean"}).config.pooling == "mean"
    change(folder, TEXT, processor_kwargs={"model_max_length": 9}, tokenizer_args={"model_max_length": 6})
    assert assert_its_vectors(folder).config.tokenization.document.length_tokens == 6


def test_a_length_beyond_the_models_positions_is_theirs(save, tiny_roberta):
    """sentence-transformers writes all of RoBERTa's 514 positions, and fails for texts that need the last."""
    folder = save(modules.Transformer(str(tiny_roberta)), modules.Pooling(32, "mean"))
    change(folder, "sentence_bert_config.json", max_seq_length=514)
    encoder = load_any_encoder(folder)
    assert [encoder.length_tokens(side) for side in ("query", "document")] == [512, 512]
    short = TEXTS[1:]
    np.testing.assert_allclose(encoder.encode(short), opened(folder).encode(short), atol=1e-5)
    assert np.isfinite(encoder.encode(TEXTS)).all()


def test_a_router_of_two_towers(transformer, save):
    query = [transformer(12), modules.Pooling(32, "mean"), dense(), modules.Normalize()]
    document = [transformer(24, 0.9), modules.Pooling(32, "mean"), dense()]
    folder = save(modules.Router.for_query_document(query, document), prompts=PROMPTS)
    read = assert_its_vectors(folder).config
    assert (read.tied, read.projection) == (False, 8)
    assert read.normalize == "query"
    assert (read.tokenization.query.length_tokens, read.tokenization.query.template) == (12, "query: {text}")
    with pytest.raises(ValueError, match=r"has two towers; set encoder.tied"):
        initial_encoder(EncoderConfig(model=str(folder), tied=True), seed=1)


def test_a_router_that_shares_layers(transformer, save):
    """They are one tower, also if its heads differ; layers after the Router are of both sides."""
    shared = [transformer(), modules.Pooling(32, "mean")]
    one = save(modules.Router.for_query_document(shared, shared), modules.Normalize(), prompts=PROMPTS)
    config = assert_its_vectors(one).config
    assert (config.tied, config.normalize, config.projection) == (True, True, None)
    heads = save(modules.Router.for_query_document([*shared, dense()], [*shared, dense()]))
    towers = assert_its_vectors(heads).towers
    assert towers.tied and towers.queries.dimension == 8


def test_the_document_tower_has_the_settings_of_its_model(transformer, save):
    query = save(transformer(12), modules.Pooling(32, "mean"), modules.Normalize(), prompts=PROMPTS)
    document = save(transformer(24, 0.9), modules.Pooling(32, "mean"), prompts={"document": "text: "})
    config = EncoderConfig(model=str(query), document={"model": str(document)}, tied=False)
    read = config.tokenization.document
    assert (read.template, read.length_tokens) == ("text: {title} {text}", 24)
    encoder = initial_encoder(config, seed=1)
    assert encoder.config.normalize == "query"
    model = opened(document)
    np.testing.assert_allclose(encoder.encode(TEXTS, "document"), model.encode_document(TEXTS), atol=1e-5)


def test_a_model_of_the_hub_with_weights_in_folders(transformer, save, to_hub):
    layers = [[transformer(20, factor), modules.Pooling(32, "mean")] for factor in (1.0, 0.9)]
    folder = save(modules.Router.for_query_document(*layers))
    to_hub(folder, "org/two")
    assert_its_vectors(folder, load_any_encoder("org/two"))


def test_a_template_in_place_of_a_prompt_with_braces_holds_for_a_model_of_the_hub(transformer, save, to_hub):
    to_hub(save(transformer(), modules.Pooling(32, "mean"), prompts={"query": "{ask} "}), "org/odd")
    given = {"query": {"template": "ask {text}"}}
    encoder = initial_encoder(EncoderConfig(model="org/odd", tokenization=given), seed=1)
    assert encoder.config.tokenization.query.template == "ask {text}"


def test_an_own_model_of_the_hub_keeps_its_settings(tiny_bert, saved, to_hub):
    reads = {"query": {"template": "the {text} ?", "length_tokens": 9}, "document": {"length_tokens": 30}}
    own = saved(initial_encoder(EncoderConfig(model=str(tiny_bert), pooling="mean", tokenization=reads), 1))
    early = EncoderConfig(model="org/own")  # as before its first download
    to_hub(own, "org/own")
    encoder = initial_encoder(EncoderConfig(model="org/own"), seed=2)
    assert encoder.config.tokenization == config_of(own).tokenization
    for again in (encoder, load_any_encoder("org/own")):
        assert_equal_vectors(again, load_encoder(own), TEXTS)
    with pytest.raises(ValueError, match="org/own was not in the cache .* start again"):
        initial_encoder(early, seed=2)


MODELS = {
    "activation": lambda m, layers: [*layers(), m.Dense(32, 8)],
    "two": lambda m, layers: [*layers(), m.Dense(32, 64, bias=False), m.Dense(64, 16), m.Normalize()],
    "residual": lambda m, layers: [*layers(), m.Dense(32, 32, use_residual=True)],
    "norm": lambda m, layers: [*layers(), m.LayerNorm(32)],
    "norm first": lambda m, layers: [*layers(), m.LayerNorm(32), m.Dense(32, 8)],
    "poolings": lambda m, layers: [m.Router.for_query_document(layers(), layers("cls"))],
    "after": lambda m, layers: [*layers(), m.Router.for_query_document([m.LayerNorm(32)], [m.Dense(32, 32)])],
    "both": lambda m, layers: layers(("cls", "max")),
    **{mode: partial(lambda mode, m, layers: layers(mode), mode) for mode in get_args(PoolingMode)},
}


@pytest.mark.parametrize("name", MODELS)
def test_whatever_the_modules_vectors_are_its_own_also_when_saved(transformer, save, saved, name):
    def layers(pooling="mean"):
        return [transformer(), modules.Pooling(32, pooling)]

    encoder = assert_its_vectors(save(*MODELS[name](modules, layers), prompts=PROMPTS))
    again = saved(encoder)
    assert_its_vectors(again, encoder)
    assert_equal_vectors(load_encoder(again), encoder, TEXTS)
    assert_equal_vectors(continue_encoder(config_of(again), again), encoder, TEXTS)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("normalized", [True, False])
def test_vectors_are_cut_as_the_files_say(transformer, save, saved, normalized, tied):
    """Of length 1 again if they were: sentence-transformers compares these by cosine."""
    folder = save(transformer(), modules.Pooling(32, "mean"), *[modules.Normalize()] * normalized)
    change(folder, MODEL, truncate_dim=8)
    encoder = load_any_encoder(folder)
    expected = opened(folder).encode(TEXTS, normalize_embeddings=normalized)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    if not tied:
        encoder.untie()
    again = saved(encoder)
    model, vectors = opened(again), encoder.encode(TEXTS, "document")
    found = model.similarity(model.encode_query(TEXTS), model.encode_document(TEXTS))
    np.testing.assert_allclose(found, expected @ vectors.T, atol=1e-5)
    assert model.encode(TEXTS).shape == (2, 8) == (2, encoder.dimension)
    settings = config_of(again)
    for loaded in (load_encoder(again), continue_encoder(settings, again), initial_encoder(settings, 1)):
        assert_equal_vectors(loaded, encoder, TEXTS)
    null = settings.model_copy(update={"truncate_dim": None})
    assert_equal_vectors(continue_encoder(null, again), encoder, TEXTS)
    assert initial_encoder(null, 1).dimension == 32
    assert EncoderConfig(model=str(again), tied=tied, truncate_dim=4).truncate_dim == 4


def test_more_numbers_than_a_vector_has_are_refused(transformer, save):
    folder = save(transformer(), modules.Pooling(32, "mean"), truncate_dim=33)
    with pytest.raises(ValueError, match="encoder.truncate_dim is 33, vectors have 32 numbers; set"):
        load_any_encoder(folder)


@pytest.mark.parametrize(
    ("layers", "file", "settings", "message"),
    [
        ("routes", MODEL, {}, "whose Router has the routes query, doc, and none for a document"),
        ("mean", MODEL, {"prompts": {"query": "{task}: "}}, "braces.*set tokenization.query.templ"),
        ("mean", "1_Pooling/config.json", {"include_prompt": False}, "left out of the pooling"),
        ("mean", TEXT, {"processor_kwargs": {"add_prefix_space": True}}, "sets add_prefix_space"),
        ("mean", TEXT, {"query_expansion": {"strategy": "min", "length": 9}}, "sets query_expansion"),
        ("mean", TOKENIZER, {"truncation_side": "left"}, "tokenizer is 'left'; expected 'right'"),
    ],
)
def test_what_this_package_lacks_is_refused(transformer, save, layers, file, settings, message):
    def of(pooling="mean"):
        return [transformer(), modules.Pooling(32, pooling)]

    folder = change(save(*{**MODELS, **ROUTES}[layers](modules, of), prompts=PROMPTS), file, **settings)
    with pytest.raises(ValueError, match=message):
        load_any_encoder(folder)


def test_a_projection_has_the_size_of_all_poolings_together(transformer, save, saved):
    folder = save(transformer(), modules.Pooling(32, ("cls", "max")))
    encoder = initial_encoder(EncoderConfig(model=str(folder), projection=8), seed=1)
    assert encoder.encode(["a text"]).shape == (1, 8)


def test_any_modules_may_be_followed_by_a_normalization(transformer, save):
    layers = [transformer(), modules.Pooling(32, "mean"), modules.Dense(32, 8), modules.Dense(8, 4)]
    encoder = initial_encoder(EncoderConfig(model=str(save(*layers)), normalize=True), seed=1)
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(TEXTS), axis=1), 1, atol=1e-5)


def test_settings_of_modules_need_modules_that_they_can_name(transformer, save):
    folder = save(transformer(), modules.Pooling(32, "lasttoken"), modules.Dense(32, 8), modules.Dense(8, 4))
    with pytest.raises(ValueError, match="encoder.pooling is set, but .* Transformer Pooling Dense Dense;"):
        initial_encoder(EncoderConfig(model=str(folder), pooling="mean"), seed=1)
