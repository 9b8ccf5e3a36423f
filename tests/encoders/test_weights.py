"""Models whose files would be ignored, or do not fit each other, are refused when they are loaded."""

import json
import shutil
from functools import partial

import pytest
from transformers import AutoTokenizer

from pyserini_ance.encoders import hub
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.cross_encoder_model import CrossEncoderModel
from pyserini_ance.encoders.initial import initial_encoder
from pyserini_ance.encoders.released import foreign_settings
from pyserini_ance.encoders.weights import ADAPTER
from pyserini_ance.negatives.teachers.cross_encoder import config_file
from pyserini_ance.pipeline.teacher_training import check_start

SIZES = r": \d+ weights do not have the sizes of config.json, first .*bias: \(32,\), expected \(16,\)"
BASE = r"model: adapter_config.json: base_model_name_or_path 'some/base' is no folder here, .* .no route"
MERGED = " has an adapter .*, which is not loaded here; merge it into its base model first"
IDS = r"the tokenizer of .* has ids up to (\d+), but the model has embeddings for \1 ids; .*resize_token_"


def encoder(folder: str, **settings):
    lengths = {"document": {"length_tokens": 48}}
    return initial_encoder(EncoderConfig(model=folder, tokenization=lengths, **settings), 0)


def cross_encoder(folder: str):
    return CrossEncoderModel(folder, "cpu")


def narrow(folder) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 16}))


def with_adapter(folder, base="some/base") -> None:
    (folder / ADAPTER).write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": base}))


def adapter_alone(folder) -> None:
    with_adapter(folder)
    for path in (folder / "config.json", *folder.glob("model*"), *folder.glob("token*")):
        path.unlink()


def with_new_word(folder, **how) -> None:
    extended = AutoTokenizer.from_pretrained(folder)
    extended.add_tokens(["newword"], **how)
    extended.save_pretrained(folder)


@pytest.mark.parametrize(
    ("start", "load", "change", "error", "message"),
    [
        ("bert", encoder, narrow, RuntimeError, SIZES),
        ("cross_encoder", cross_encoder, narrow, RuntimeError, SIZES),
        ("bert", check_start, adapter_alone, ValueError, MERGED),
        ("bert", encoder, with_adapter, ConnectionError, BASE),
        ("bert", encoder, adapter_alone, ConnectionError, BASE),
        ("bert", partial(foreign_settings, given={"pooling": "mean"}), adapter_alone, ConnectionError, BASE),
        ("bert", encoder, partial(with_adapter, base=None), ValueError, "_path is null; name the base model"),
        ("cross_encoder", cross_encoder, with_adapter, ValueError, MERGED),
        ("cross_encoder", config_file, adapter_alone, ValueError, MERGED),
        ("bert", encoder, with_new_word, ValueError, IDS),
        ("roberta", partial(encoder, projection=768, layer_norm=True), with_new_word, ValueError, IDS),
        ("cross_encoder", cross_encoder, with_new_word, ValueError, IDS),
    ],
)
def test_unfit_files_are_refused_by_name(tmp_path, request, monkeypatch, start, load, change, error, message):
    monkeypatch.setattr(hub, "_unreachable", lambda model, name: OSError("no route"))
    folder = shutil.copytree(request.getfixturevalue(f"tiny_{start}"), tmp_path / "model")
    load(str(folder))
    change(folder)
    with pytest.raises(error, match=message):
        load(str(folder))


def test_a_special_token_that_no_text_gets_needs_no_embedding(tmp_path, tiny_bert):
    """As Gemma 3's of an image; one for padding is read."""
    folder = shutil.copytree(tiny_bert, tmp_path / "model")
    with_new_word(folder, special_tokens=True)
    assert encoder(str(folder)).encode(["a text"]).shape == (1, 32)
    padded = AutoTokenizer.from_pretrained(folder)
    padded.pad_token = "newword"
    padded.save_pretrained(folder)
    with pytest.raises(ValueError, match=IDS):
        encoder(str(folder))
