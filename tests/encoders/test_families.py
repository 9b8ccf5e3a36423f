"""Families of models that people start from: sentence-transformers computes the same from what is saved."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from helpers.families import FAMILIES, LENGTHS, TEXTS, assert_the_same, bert, make_family, xlm_roberta
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, StaticEmbedding
from sentence_transformers.sentence_transformer.modules import Transformer as TransformerModule
from tokenizers import Tokenizer
from transformers import T5Config, T5EncoderModel

from pyserini_ance.encoders.config import SIDE_FILE
from pyserini_ance.encoders.load_save import continue_encoder, load_encoder
from pyserini_ance.runs.any_encoder import load_any_encoder


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    return lambda name: make_family(tmp_path_factory.mktemp(name), name)


@pytest.mark.parametrize("name", FAMILIES)
def test_vectors_of_a_family_are_those_of_sentence_transformers(family, start, saved, name):
    source, pooling = family(name), FAMILIES[name][2]
    encoder = start(source, pooling=pooling, normalize=True, tokenization=LENGTHS)
    folder = saved(encoder)
    model = assert_the_same(folder, encoder)
    again = continue_encoder(encoder.config, folder)
    np.testing.assert_array_equal(again.encode(TEXTS), encoder.encode(TEXTS))
    assert again.tokenizer.specials == encoder.tokenizer.specials
    if pooling == "lasttoken":
        ids = model.preprocess([TEXTS[2]], task="query")["input_ids"]
        eos = transformers.AutoTokenizer.from_pretrained(folder).eos_token_id
        assert encoder.tokenizer.specials["query"].after == (eos,)
        assert ids[0, -1] == eos and ids.shape == (1, 24)


@pytest.mark.parametrize("padded", ["left", "right"])
def test_the_last_token_is_the_same_whatever_side_is_padded(family, start, saved, padded):
    source = family("Qwen3")
    transformers.AutoTokenizer.from_pretrained(source, padding_side=padded).save_pretrained(source)
    encoder = start(source, pooling="lasttoken", tokenization=LENGTHS)
    model = assert_the_same(saved(encoder), encoder)
    assert model.tokenizer.padding_side == padded


@pytest.mark.parametrize("name", ["Qwen3", "Llama", "Mistral"])
def test_a_decoder_attends_both_ways_if_asked(family, start, saved, name):
    settings = {"pooling": "mean", "tokenization": LENGTHS}
    causal = start(family(name), **settings)
    both = start(family(name), **settings, bidirectional=True)
    assert not np.allclose(causal.encode(TEXTS), both.encode(TEXTS), atol=1e-3)
    ids = both.tokenizer.tokenizers["query"](TEXTS[1], return_tensors="pt").input_ids
    for encoder, sees_later in ((causal, False), (both, True)):
        model = encoder.towers.tower("query").transformer
        whole, alone = model(ids).last_hidden_state[0, 0], model(ids[:, :1]).last_hidden_state[0, 0]
        assert torch.allclose(whole, alone, atol=1e-5) != sees_later
    folder = saved(both)
    assert_the_same(folder, both)  # other tools read it so, padded or not
    np.testing.assert_array_equal(load_encoder(folder).encode(TEXTS), both.encode(TEXTS))
    np.testing.assert_array_equal(start(folder, pooling="mean").encode(TEXTS), both.encode(TEXTS))


def test_a_model_without_attention_does_not_attend_both_ways(tiny_bert, start):
    with pytest.raises(ValueError, match="encoder.bidirectional: the attention of .* cannot be chosen"):
        start(tiny_bert, layers=[], bidirectional=True)


def test_embedding_gemma_has_two_dense_layers(family, tmp_path, saved):
    layers = [TransformerModule(str(family("Gemma3Text")), max_seq_length=40), Pooling(32, "mean")]
    layers += [Dense(32, 64, bias=False, activation_function=None)]
    layers += [Dense(64, 32, bias=False, activation_function=None), Normalize()]
    prompts = {"query": "task: search result | query: ", "document": "title: none | text: "}
    SentenceTransformer(modules=layers, device="cpu", prompts=prompts).save(str(tmp_path / "gemma"))
    encoder = load_any_encoder(tmp_path / "gemma")
    assert_the_same(tmp_path / "gemma", encoder)
    assert_the_same(saved(encoder), encoder)


def test_a_chat_template_leaves_texts_as_they_are(family, start, saved):
    folder = family("Qwen3")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = "{% for one in messages %}{{ one['role'] }}: {{ one['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    encoder = start(folder, pooling="lasttoken", tokenization=LENGTHS)
    assert_the_same(saved(encoder), encoder)


@pytest.mark.parametrize("of_model2vec", [False, True])
def test_a_static_embedding_is_the_mean_of_its_tokens(tmp_path, saved, of_model2vec):
    torch.manual_seed(0)
    layers = [StaticEmbedding(bert(), embedding_dim=16), Normalize()]
    SentenceTransformer(modules=layers, device="cpu").save(str(tmp_path / "static"))
    if of_model2vec:  # which writes other files beside, `.` for the folder, and cuts texts
        (tmp_path / "static" / "config.json").write_text('{"model_type": "bert"}')
        listed = tmp_path / "static" / "modules.json"
        listed.write_text(listed.read_text().replace('"path": ""', '"path": "."'))
        tokenizer = Tokenizer.from_file(str(tmp_path / "static" / "tokenizer.json"))
        tokenizer.enable_truncation(9)
        tokenizer.save(str(tmp_path / "static" / "tokenizer.json"))
    encoder = load_any_encoder(tmp_path / "static")
    assert_the_same(tmp_path / "static", encoder)
    folder = saved(encoder)
    assert_the_same(folder, encoder)
    np.testing.assert_array_equal(load_encoder(folder).encode(TEXTS), encoder.encode(TEXTS))
    np.testing.assert_array_equal(encoder.encode(TEXTS, "query", "bf16"), encoder.encode(TEXTS))
    [weights] = folder.rglob("model.safetensors")
    save_file({name: value.half() for name, value in load_file(weights).items()}, weights)
    assert {weight.dtype for weight in load_encoder(folder).towers.parameters()} == {torch.float32}


def test_dropout_is_that_of_attention_too(family, start):
    towers = start(family("Qwen3"), pooling="lasttoken", tokenization=LENGTHS, dropout=0.3).towers
    assert {getattr(module, "attention_dropout", None) for module in towers.modules()} == {None, 0.3}


def test_a_model_of_relative_positions_reads_long_texts_and_has_its_own_dropouts(tmp_path, start):
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    T5EncoderModel(T5Config(vocab_size=200, **sizes)).save_pretrained(tmp_path / "t5")
    xlm_roberta().save_pretrained(tmp_path / "t5")
    settings = {"pooling": "mean", "tokenization": {"document": {"length_tokens": 600}}, "dropout": 0.0}
    encoder = start(tmp_path / "t5", **settings)
    towers, ids = encoder.towers.train(), torch.arange(5, 25)[None]
    assert torch.equal(towers("query", ids, None), towers("query", ids, None))
    assert not np.allclose(*encoder.encode(["word " * 110, "word " * 110 + "other"], "document"), atol=1e-6)


def test_a_tokenizer_that_pads_with_nothing_pads_with_the_end(family, start):
    encoder = start(family("Llama"), pooling="lasttoken", tokenization=LENGTHS)
    assert encoder.tokenizer.tokenizers["query"].pad_token == encoder.tokenizer.tokenizers["query"].eos_token


def test_a_decoder_needs_a_pooling(family, start):
    source = family("Qwen3")
    for load in (start, load_any_encoder):
        with pytest.raises(ValueError, match="is a decoder; set encoder.pooling, .* to lasttoken"):
            load(source)


@pytest.mark.parametrize("form", ["plain", "sentence-transformers"])
def test_code_of_a_repository_is_never_run(tiny_bert, tmp_path, start, saved, form):
    folder = tmp_path / "model"
    shutil.copytree(tiny_bert if form == "plain" else saved(start(tiny_bert)), folder)
    (folder / SIDE_FILE).unlink(missing_ok=True)
    written = json.loads((folder / "config.json").read_text())
    changed = {**written, "model_type": "own", "auto_map": {"AutoModel": "code.Model"}}
    (folder / "code.py").write_text("raise SystemExit(9)")
    (folder / "config.json").write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="has code of its own .*, which is not run; .* 'own' is none"):
        start(folder)


def test_of_a_decoder_with_code_of_its_own_transformers_class_encodes(family, start, caplog):
    file = Path(family("Qwen3")) / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "auto_map": {"AutoModel": "code.Model"}}))
    start(file.parent, pooling="lasttoken")
    assert "which is not run: vectors are those of transformers' qwen3" in caplog.text
