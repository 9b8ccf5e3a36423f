"""Encoders made of some layers of a model, against models that transformers cut by hand."""

import json
import shutil

import numpy as np
import pytest
import torch
from helpers.released_checkpoints import LOWER
from safetensors.torch import load_file
from torch import nn
from transformers import (
    AlbertConfig,
    AlbertModel,
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BertConfig,
    DistilBertConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
)

import pyserini_ance as pa
from pyserini_ance.encoders.load_save import (
    SIDE_FILE,
    continue_encoder,
    family_of,
    initial_encoder,
    load_encoder,
    read_side_file,
)

COUNT, LAYERS, SEED = 5, [0, 2, 4], 1
SHAPE = {"num_hidden_layers": COUNT, "max_position_embeddings": 130, "initializer_range": 0.5}
WIDTH = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
MODERN = {"sep_token_id": 3, "cls_token_id": 2, "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
MODELS = {
    "bert": (BertConfig, WIDTH, "encoder.layer"),
    "roberta": (RobertaConfig, {**WIDTH, "pad_token_id": 0}, "encoder.layer"),
    "mpnet": (MPNetConfig, {**WIDTH, "pad_token_id": 0}, "encoder.layer"),
    "distilbert": (DistilBertConfig, {"dim": 32, "n_heads": 2, "hidden_dim": 64}, "transformer.layer"),
    # Layers 0 and 3 attend to the whole text, the others to a window.
    "modernbert": (ModernBertConfig, {**WIDTH, **MODERN, "local_attention": 4}, "layers"),
}


@pytest.fixture(scope="module")
def model(tiny_bert, tmp_path_factory):
    """A model of five random layers with the tokenizer of `tiny_bert`, as a folder."""

    def make(name):
        config_class, settings, _ = MODELS[name]
        folder = tmp_path_factory.mktemp(name)
        tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
        tokenizer.save_pretrained(folder)
        torch.manual_seed(0)
        config = config_class(vocab_size=len(tokenizer), **SHAPE, **settings)
        AutoModel.from_config(config).save_pretrained(folder)
        return folder

    return make


def cut_by_hand(folder, name, layers, target):
    """The model whose list of layers was shortened in place, saved as transformers saves it."""
    theirs = AutoModel.from_pretrained(folder)
    path = MODELS[name][2]
    every = theirs.get_submodule(path)
    theirs.set_submodule(path, nn.ModuleList([every[number] for number in layers]))
    theirs.config.num_hidden_layers = len(layers)
    if name == "modernbert":
        theirs.config.layer_types = [theirs.config.layer_types[number] for number in layers]
    theirs.save_pretrained(target)
    AutoTokenizer.from_pretrained(folder).save_pretrained(target)
    return theirs.eval()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_are_those_of_a_model_cut_by_hand(family, model, records, saved, tmp_path, name, pooling):
    folder = model(name)
    settings = {"pooling": pooling, "normalize": True}
    encoder = initial_encoder(family("transformer", folder, layers=LAYERS, **settings), SEED)
    cut = cut_by_hand(folder, name, LAYERS, tmp_path / "cut")
    by_hand = initial_encoder(family("transformer", tmp_path / "cut", **settings), SEED)
    vectors = encoder.encode(records, "document")
    np.testing.assert_array_equal(vectors, by_hand.encode(records, "document"))
    whole = initial_encoder(family("transformer", folder, **settings), SEED)
    assert abs(vectors - whole.encode(records, "document")).max() > 0.01

    checkpoint = saved(encoder)
    np.testing.assert_array_equal(load_encoder(checkpoint).encode(records, "document"), vectors)
    theirs = AutoModel.from_pretrained(checkpoint)
    assert theirs.config.num_hidden_layers == len(LAYERS) == len(theirs.get_submodule(MODELS[name][2]))
    torch.testing.assert_close(theirs.state_dict(), cut.state_dict(), rtol=0, atol=0)
    assert read_side_file(checkpoint)["layers"] == LAYERS


def test_vectors_are_those_of_transformers_to_the_last_bit(family, model, records, tmp_path):
    folder = model("bert")
    encoder = initial_encoder(family("transformer", folder, layers=LAYERS), SEED)
    cut = cut_by_hand(folder, "bert", LAYERS, tmp_path / "cut")
    cut.set_attn_implementation(encoder.attention)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for record in records:
        inputs = tokenizer(record["text"], truncation=True, max_length=24, return_tensors="pt")
        with torch.inference_mode():
            hidden = cut(input_ids=inputs.input_ids, attention_mask=inputs.attention_mask).last_hidden_state
        np.testing.assert_array_equal(encoder.encode([record], "query")[0], hidden[0, 0].numpy())


@pytest.mark.parametrize("name", ["bert", "distilbert", "mpnet"])
def test_sentence_transformers_loads_what_was_saved(family, model, saved, name):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    settings = {"pooling": "mean", "layers": [1, 3]}
    encoder = initial_encoder(family("transformer", model(name), **settings), SEED)
    theirs = sentence_transformers.SentenceTransformer(str(saved(encoder)), device="cpu")
    texts = ["the quick brown fox", "a", "jumps over the lazy dog and then some more"]
    np.testing.assert_allclose(theirs.encode(texts), encoder.encode(texts), atol=1e-5)


def test_all_layers_in_order_are_the_model(family, model, records):
    folder = model("bert")
    every, given = (
        initial_encoder(family("transformer", folder, layers=layers), SEED)
        for layers in (None, list(range(COUNT)))
    )
    torch.testing.assert_close(every.towers.state_dict(), given.towers.state_dict(), rtol=0, atol=0)
    np.testing.assert_array_equal(given.encode(records), every.encode(records))


def test_two_towers_are_cut_alike_and_the_random_state_stays(family, model, records, saved):
    settings = {"layers": [0, 4], "tied": False, "projection": 8}
    cut = family("transformer", model("bert"), **settings)
    state = torch.get_rng_state()
    encoder = initial_encoder(cut, SEED)
    assert torch.equal(torch.get_rng_state(), state)
    loaded = load_encoder(saved(encoder))
    for side in ("query", "document"):
        assert loaded.towers.tower(side).backbone.config.num_hidden_layers == 2
        np.testing.assert_array_equal(loaded.encode(records, side), encoder.encode(records, side))


def test_the_python_api_takes_a_mapping_with_layers(family, model, records):
    folder = model("bert")
    mapping = {"kind": "transformer", "model": str(folder), "layers": [1]}
    mapping["tokenization"] = {"query": {"length_tokens": 24}, "document": {"length_tokens": 48}}
    expected = initial_encoder(family("transformer", folder, layers=[1]), SEED)
    np.testing.assert_array_equal(
        pa.load_encoder(mapping, device="cpu").encode(records), expected.encode(records)
    )


class TestRobertaAnce:
    @pytest.fixture
    def whole(self, family, saved, tiny_roberta):
        """A saved encoder of two layers with a head."""
        settings = {"head": "new", "dimension": 16, "tokenization": LOWER}
        return saved(initial_encoder(family("roberta_ance", tiny_roberta, **settings), SEED))

    @pytest.mark.parametrize("number", [0, 1])
    def test_vectors_are_those_of_roberta_cut_by_hand_and_its_head(
        self, family, saved, whole, records, number
    ):
        settings = {"dimension": 16, "tokenization": LOWER}
        encoder = initial_encoder(family("roberta_ance", whole, layers=[number], **settings), SEED)
        vectors = encoder.encode(records, "document")
        by_hand = load_encoder(whole)
        layers = by_hand.towers.queries.model.roberta.encoder.layer
        by_hand.towers.queries.model.roberta.encoder.layer = nn.ModuleList([layers[number]])
        np.testing.assert_array_equal(vectors, by_hand.encode(records, "document"))
        folder = saved(encoder)
        np.testing.assert_array_equal(load_encoder(folder).encode(records, "document"), vectors)
        assert AutoConfig.from_pretrained(folder).num_hidden_layers == 1
        weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
        assert weights.keys() == load_file(folder / "model.safetensors").keys()
        assert not any(".layer.1." in name for name in weights)

    def test_a_start_without_a_head_gets_one(self, family, tiny_roberta):
        encoder = initial_encoder(
            family("roberta_ance", tiny_roberta, head="new", dimension=16, layers=[1]), SEED
        )
        assert encoder.encode(["the"]).shape == (1, 16)


class TestASavedEncoder:
    @pytest.fixture
    def checkpoint(self, family, model, saved):
        return saved(initial_encoder(family("transformer", model("bert"), layers=LAYERS), SEED))

    def test_training_continues_from_it_whole(self, family, checkpoint, records):
        expected = load_encoder(checkpoint)
        assert expected.family.layers == (0, 2, 4) == family_of(checkpoint).layers
        again = continue_encoder(family("transformer", "a-hub-name", layers=LAYERS), checkpoint)
        np.testing.assert_array_equal(again.encode(records), expected.encode(records))

    @pytest.mark.parametrize("layers", [None, [0, 2], [0, 1, 2]])
    def test_a_recipe_of_other_layers_cannot_continue_from_it(self, family, checkpoint, layers):
        message = r"encoder.layers is .*, but .* was trained with \(0, 2, 4\); use the latter in the recipe"
        with pytest.raises(ValueError, match=message):
            continue_encoder(family("transformer", "a-hub-name", layers=layers), checkpoint)

    def test_a_whole_checkpoint_is_not_that_of_some_layers(self, family, model, saved):
        folder = saved(initial_encoder(family("transformer", model("bert")), SEED))
        with pytest.raises(ValueError, match=r"encoder.layers is \(0, 2\), but .* was trained with None"):
            continue_encoder(family("transformer", "a-hub-name", layers=[0, 2]), folder)

    def test_as_a_model_it_may_be_cut_further(self, family, model, checkpoint, records):
        start = initial_encoder(family("transformer", checkpoint), SEED)
        np.testing.assert_array_equal(start.encode(records), load_encoder(checkpoint).encode(records))
        twice = initial_encoder(family("transformer", checkpoint, layers=[0, 2]), SEED)
        once = initial_encoder(family("transformer", model("bert"), layers=[0, 4]), SEED)
        np.testing.assert_array_equal(twice.encode(records), once.encode(records))
        with pytest.raises(ValueError, match=r"has 3 layers, 0 to 2; .* remove encoder.layers to take all"):
            initial_encoder(family("transformer", checkpoint, layers=LAYERS), SEED)

    def test_a_checkpoint_of_an_earlier_version_is_whole(self, family, model, saved):
        folder = saved(initial_encoder(family("transformer", model("bert")), SEED))
        side = json.loads((folder / SIDE_FILE).read_text())
        assert side.pop("layers", 0) is None
        (folder / SIDE_FILE).write_text(json.dumps(side))
        assert continue_encoder(family("transformer", "a-hub-name"), folder).family.layers is None


@pytest.mark.parametrize("layers", [[], [True], [-1], "0", 3, [0.0], {"0": 1}])
def test_what_is_not_a_list_of_layer_numbers_is_refused(family, layers):
    with pytest.raises(ValueError, match=r"expected a list of layer numbers, counted from 0"):
        family("transformer", "bert", layers=layers)


@pytest.mark.parametrize(("layers", "cure"), [([2, 0], r"\[0, 2\]"), ([0, 2, 2], r"\[0, 2\]")])
def test_layers_are_ascending_and_different(family, layers, cure):
    with pytest.raises(ValueError, match=rf"expected ascending numbers, each once: {cure}"):
        family("roberta_ance", "roberta", layers=layers)


@pytest.mark.parametrize("name", ["bert", "distilbert"])
def test_a_layer_that_the_model_lacks_is_refused(family, model, name):
    folder = model(name)
    with pytest.raises(ValueError, match=rf"layers is \[0, 5\], but {folder} has 5 layers, 0 to 4"):
        initial_encoder(family("transformer", folder, layers=[0, 5]), SEED)


def test_a_model_that_shares_its_layers_is_refused(family, tiny_bert, tmp_path):
    shutil.copytree(tiny_bert, tmp_path, dirs_exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    config = AlbertConfig(vocab_size=len(tokenizer), embedding_size=16, **SHAPE, **WIDTH)
    AlbertModel(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"\(AlbertModel\) has none of 5 layers; remove encoder.layers"):
        initial_encoder(family("transformer", tmp_path, layers=[0]), SEED)


def test_layers_that_do_not_fit_into_other_places_are_refused(family, model):
    with pytest.raises(ValueError, match=r"\(ModernBertModel\) differ .*; start the list with 0"):
        initial_encoder(family("transformer", model("modernbert"), layers=[1, 2]), SEED)
