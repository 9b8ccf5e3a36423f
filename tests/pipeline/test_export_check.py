"""The proof of an export: equal vectors pass, and each damaged file is told."""

import json

import pytest
from helpers.small_set import ONE_STEP
from safetensors.torch import load_file, save_file

from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.load_save import save_encoder
from pyserini_ance.pipeline.export_check import BOUND, TEXTS, largest_difference, some_records
from pyserini_ance.pipeline.preparation import read_collection

TOKENIZATION = {
    "query": {"length_tokens": 16, "template": "query: {text}"},
    "document": {"length_tokens": 32, "template": "passage: {title} {text}"},
}
RECORDS = {
    "query": [{"text": "which apple"}, {"text": "the river of many words " * 4}],
    "document": [{"title": "Stone", "text": "a red apple"}, {"title": "", "text": "the text " * 30}],
}


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    settings = {"pooling": "mean", "projection": 8, "normalize": True, "tokenization": TOKENIZATION}
    return initial_encoder(EncoderConfig(model=str(tiny_bert), **settings), 1)


@pytest.fixture
def folders(encoder, tmp_path):
    """The checkpoint and the exported folder."""
    for name in ("checkpoint", "exported"):
        (tmp_path / name).mkdir()
        save_encoder(encoder, tmp_path / name)
    return tmp_path / "checkpoint", tmp_path / "exported"


def test_an_export_as_it_was_written_passes(folders):
    difference = largest_difference(*folders, RECORDS)
    assert 0 <= difference.share < BOUND
    difference.check(folders[1])


def test_texts_that_the_libraries_lower_otherwise_are_left_out(tiny_bert, tmp_path):
    config = EncoderConfig(model=str(tiny_bert), tokenization={**TOKENIZATION, "lowercase": True})
    save_encoder(initial_encoder(config, 1), tmp_path)
    assert largest_difference(tmp_path, tmp_path, {**RECORDS, "query": [{"text": "ΟΔΟΣ"}]}).share < BOUND


def test_cut_vectors_are_compared_as_they_are_used(encoder, tmp_path):
    config = encoder.config.model_copy(update={"truncate_dim": 4})
    save_encoder(initial_encoder(config, 1), tmp_path)
    assert largest_difference(tmp_path, tmp_path, RECORDS).share < BOUND


def with_values(file, change):
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


def with_weights(file):
    save_file({name: value + 0.1 for name, value in load_file(file).items()}, file, {"format": "pt"})


def with_nan(file):
    save_file({name: value * float("nan") for name, value in load_file(file).items()}, file, {"format": "pt"})


def without(name):
    return lambda modules: [module for module in modules if not module["type"].endswith(name)]


DAMAGE = {
    "pooling": lambda f: with_values(f / "1_Pooling/config.json", lambda old: {**old, "pooling_mode": "cls"}),
    "prompt": lambda f: with_values(
        f / "config_sentence_transformers.json", lambda old: {**old, "prompts": {"query": "", "document": ""}}
    ),
    "query length": lambda f: with_values(
        f / "sentence_bert_config.json", lambda old: {**old, "query_length": 8}
    ),
    "a matrix": lambda f: with_weights(f / "2_Dense/model.safetensors"),
    "the Transformer": lambda f: with_weights(f / "model.safetensors"),
    "not a number": lambda f: with_nan(f / "2_Dense/model.safetensors"),
    "a module": lambda f: with_values(f / "modules.json", without("Normalize")),
    "the size": lambda f: with_values(f / "modules.json", without("Dense")),
    "the numbers kept": lambda f: with_values(
        f / "config_sentence_transformers.json", lambda old: {**old, "truncate_dim": 4}
    ),
    "all": lambda f: (f / "modules.json").write_text("{"),
}


@pytest.mark.parametrize("damaged", DAMAGE)
def test_a_damaged_file_is_told(folders, damaged):
    DAMAGE[damaged](folders[1])
    with pytest.raises(RuntimeError, match=f"the export is wrong: {folders[1]}, .* a vector that differs"):
        largest_difference(*folders, RECORDS).check(folders[1])


def test_records_are_of_the_whole_collection(small_recipe):
    collection = read_collection(small_recipe({"a": ONE_STEP}))
    records, texts = some_records(collection, "test"), collection.documents.columns["text"]
    assert (len(records["query"]), len(records["document"])) == (5, min(TEXTS, len(texts)))
    assert records["document"][-1]["text"] == texts[len(texts) - 1].strip()
