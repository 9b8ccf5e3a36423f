import json

import pytest
from transformers import AutoTokenizer

from pyserini_ance.encoders.checkpoint import SIDE_FILE, family_of, load_encoder, read_side_file, start_encoder, start_tokenizer

TOKENIZATION = {"lowercase": True, "query": {"length_tokens": 24}, "document": {"length_tokens": 48, "template": "{title}: {text}"}}


@pytest.fixture
def checkpoint(family, tiny_bert, saved):
    return saved(start_encoder(family("transformer", tiny_bert, pooling="mean", tokenization=TOKENIZATION), seed=1))


def test_the_side_file_says_what_hugging_face_files_leave_out(checkpoint, tiny_bert):
    assert json.loads((checkpoint / SIDE_FILE).read_text()) == {
        "format": 1,
        "dimension": 32,
        "kind": "transformer",
        "model": str(tiny_bert),
        "dropout": None,
        "pooling": "mean",
        "l2": False,
        "tokenization": {
            "lowercase": True,
            "prefix_space": None,
            "max_characters": 10_000,
            "query": {"length_tokens": 24, "template": "{text}"},
            "document": {"length_tokens": 48, "template": "{title}: {text}"},
        },
    }


def test_a_loaded_encoder_reads_texts_as_the_saved_one(checkpoint, family, tiny_bert):
    loaded = load_encoder(checkpoint)
    assert loaded.family.tokenization == family("transformer", tiny_bert, tokenization=TOKENIZATION).tokenization
    assert loaded.family.model == str(checkpoint)
    started = start_tokenizer(family("transformer", tiny_bert, tokenization=TOKENIZATION))
    assert loaded.tokenizer.key("document") == started.key("document")
    assert loaded.tokenizer.specials == started.specials


def test_the_dimension_of_a_family_that_has_one_is_kept(family, tiny_roberta, saved):
    folder = saved(start_encoder(family("roberta_ance", tiny_roberta, head="new", dimension=16), seed=1))
    assert (read_side_file(folder)["dimension"], family_of(folder).dimension) == (16, 16)


def test_a_folder_without_side_file_is_refused(tiny_bert):
    with pytest.raises(FileNotFoundError, match=f"{SIDE_FILE} is missing: .* is not an encoder saved by pyserini_ance"):
        load_encoder(tiny_bert)
    with pytest.raises(FileNotFoundError, match="is missing"):
        load_encoder(tiny_bert / "nowhere")


def test_another_format_is_refused(checkpoint):
    side = json.loads((checkpoint / SIDE_FILE).read_text())
    (checkpoint / SIDE_FILE).write_text(json.dumps({**side, "format": 2}))
    with pytest.raises(RuntimeError, match="has format 2; this version reads 1"):
        load_encoder(checkpoint)


def test_a_setting_of_a_later_version_is_refused(checkpoint):
    side = json.loads((checkpoint / SIDE_FILE).read_text())
    (checkpoint / SIDE_FILE).write_text(json.dumps({**side, "whitening": True}))
    with pytest.raises(ValueError, match="unknown key 'whitening'"):
        load_encoder(checkpoint)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"pooling": "cls"}, "pooling"),
        ({"l2": True}, "l2"),
        ({"tokenization": {**TOKENIZATION, "lowercase": False}}, "tokenization"),
        ({"tokenization": {**TOKENIZATION, "document": {"length_tokens": 48}}}, "tokenization"),
    ],
)
def test_a_recipe_with_other_settings_than_the_checkpoints_is_refused(checkpoint, family, settings, key):
    wanted = {"pooling": "mean", "tokenization": TOKENIZATION}
    start_encoder(family("transformer", checkpoint, **wanted), seed=1)
    start_encoder(family("transformer", checkpoint, **wanted, dropout=0.2), seed=1)
    longer = {**TOKENIZATION, "query": {"length_tokens": 32}}
    assert start_encoder(family("transformer", checkpoint, pooling="mean", tokenization=longer), seed=1).length_tokens("query") == 32
    with pytest.raises(ValueError, match=f"encoder.{key} is .*, but .*{SIDE_FILE} was trained with .*; use the latter in the recipe"):
        start_encoder(family("transformer", checkpoint, **{**wanted, **settings}), seed=1)


def test_a_recipe_of_another_kind_than_the_checkpoint_is_refused(family, tiny_roberta, saved):
    folder = saved(start_encoder(family("transformer", tiny_roberta), seed=1))
    with pytest.raises(ValueError, match="encoder.kind is 'roberta_ance', but .* was trained with 'transformer'"):
        start_encoder(family("roberta_ance", folder, head="new"), seed=1)


def test_the_saved_tokenizer_is_the_one_that_was_used(family, tiny_roberta, saved):
    encoder = start_encoder(family("transformer", tiny_roberta, tokenization={"prefix_space": True}), seed=1)
    reopened = AutoTokenizer.from_pretrained(saved(encoder))
    assert reopened("the", add_special_tokens=False)["input_ids"] == encoder.tokenizer.ids("query", [{"text": "the"}])[0]
