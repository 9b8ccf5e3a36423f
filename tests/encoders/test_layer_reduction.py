"""Encoders made of some layers of a model, against models that transformers cut by hand."""

import shutil

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from pyserini_ance.encoders.config import config_of, read_side_file
from pyserini_ance.encoders.load_save import continue_encoder, load_encoder

COUNT, LAYERS = 5, [0, 2, 4]
SHAPE = {"num_hidden_layers": COUNT, "max_position_embeddings": 130, "initializer_range": 0.5}
WIDTH = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
OF_DISTILBERT = {"dim": 32, "n_heads": 2, "hidden_dim": 64}
MODERN = {"sep_token_id": 3, "cls_token_id": 2, "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
MODELS = {
    "bert": (transformers.BertConfig, WIDTH, "encoder.layer"),
    "roberta": (transformers.RobertaConfig, {**WIDTH, "pad_token_id": 0}, "encoder.layer"),
    "mpnet": (transformers.MPNetConfig, {**WIDTH, "pad_token_id": 0}, "encoder.layer"),
    "distilbert": (transformers.DistilBertConfig, OF_DISTILBERT, "transformer.layer"),
    # Layers 0 and 3 attend to the whole text, the others to a window.
    "modernbert": (transformers.ModernBertConfig, {**WIDTH, **MODERN, "local_attention": 4}, "layers"),
}


@pytest.fixture(scope="module")
def model(tiny_bert, tmp_path_factory):
    """A model of five random layers with the tokenizer of `tiny_bert`, as a folder."""

    def make(name):
        config_class, settings, _ = MODELS[name]
        folder = tmp_path_factory.mktemp(name)
        tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_bert)
        tokenizer.save_pretrained(folder)
        torch.manual_seed(0)
        config = config_class(vocab_size=len(tokenizer), **SHAPE, **settings)
        transformers.AutoModel.from_config(config).save_pretrained(folder)
        return folder

    return make


def cut_by_hand(folder, name, layers, target):
    """The model whose list of layers was shortened in place, saved as transformers saves it."""
    theirs = transformers.AutoModel.from_pretrained(folder)
    path = MODELS[name][2]
    every = theirs.get_submodule(path)
    theirs.set_submodule(path, nn.ModuleList([every[number] for number in layers]))
    theirs.config.num_hidden_layers = len(layers)
    if name == "modernbert":
        theirs.config.layer_types = [theirs.config.layer_types[number] for number in layers]
    theirs.save_pretrained(target)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(target)
    return theirs.eval()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_are_those_of_a_model_cut_by_hand(start, model, records, saved, tmp_path, name, pooling):
    folder = model(name)
    settings = {"pooling": pooling, "normalize": True}
    encoder = start(folder, layers=LAYERS, **settings)
    cut = cut_by_hand(folder, name, LAYERS, tmp_path / "cut")
    by_hand = start(tmp_path / "cut", **settings)
    vectors = encoder.encode(records, "document")
    np.testing.assert_array_equal(vectors, by_hand.encode(records, "document"))
    assert abs(vectors - start(folder, **settings).encode(records, "document")).max() > 0.01

    checkpoint = saved(encoder)
    np.testing.assert_array_equal(load_encoder(checkpoint).encode(records, "document"), vectors)
    theirs = transformers.AutoModel.from_pretrained(checkpoint)
    assert theirs.config.num_hidden_layers == len(LAYERS) == len(theirs.get_submodule(MODELS[name][2]))
    torch.testing.assert_close(theirs.state_dict(), cut.state_dict(), rtol=0, atol=0)
    assert read_side_file(checkpoint)["layers"] == LAYERS


def test_training_goes_on_from_a_saved_encoder_and_a_model_can_be_cut(config, model, records, saved, start):
    whole = model("bert")
    checkpoint = saved(start(whole, layers=LAYERS))
    expected = load_encoder(checkpoint)
    assert expected.config.layers == (0, 2, 4) == config_of(checkpoint).layers
    again = continue_encoder(config("a-hub-name", layers=LAYERS), checkpoint)
    for encoder in (again, start(checkpoint)):
        np.testing.assert_array_equal(encoder.encode(records), expected.encode(records))
    twice = start(checkpoint, layers=[0, 2])
    np.testing.assert_array_equal(twice.encode(records), start(whole, layers=[0, 4]).encode(records))
    uncut = saved(start(whole))
    for folder, layers, kept in ((checkpoint, None, r"\(0, 2, 4\)"), (uncut, [0, 2], "None")):
        message = f"encoder.layers is .*, but .* was trained with {kept}; use the latter in the recipe"
        with pytest.raises(ValueError, match=message):
            continue_encoder(config("a-hub-name", layers=layers), folder)
    with pytest.raises(ValueError, match=r"has 3 layers, 0 to 2; .* remove encoder.layers to take all"):
        start(checkpoint, layers=LAYERS)


def test_layers_that_a_model_cannot_be_made_of_are_refused(start, model, tiny_bert, tmp_path):
    """It lacks them; its layers are one layer; they do not fit into other places."""
    shutil.copytree(tiny_bert, tmp_path, dirs_exist_ok=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_bert)
    config = transformers.AlbertConfig(vocab_size=len(tokenizer), embedding_size=16, **SHAPE, **WIDTH)
    transformers.AlbertModel(config).save_pretrained(tmp_path)
    differ = r".*\(ModernBertModel\) differ .*; start the list with 0"
    for folder, layers, message in (
        (model("distilbert"), [0, 5], r"layers is \[0, 5\], but .* has 5 layers, 0 to 4"),
        (tmp_path, [0], r"\(AlbertModel\) has none of 5 layers; remove encoder.layers"),
        (model("modernbert"), [1, 2], rf"^encoder.layers is \[1, 2\], {differ}"),
    ):
        with pytest.raises(ValueError, match=message):
            start(folder, layers=layers)
