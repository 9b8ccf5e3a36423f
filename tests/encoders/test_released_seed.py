"""SEED-Encoder's checkpoints, pretrained or as ANCE, under fairseq's names; a vocabulary without capitals."""

import pytest
import torch
from helpers.released_checkpoints import HEAD, SEED_BEFORE, assert_same_vectors, seed_weights, weights_of

from pyserini_ance.encoders.load_save import load_encoder

SEED_SHAPE = {
    "vocab_size": "vocab_size", "hidden_size": "encoder_embed_dim", "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads", "intermediate_size": "encoder_ffn_embed_dim",
}  # fmt: skip
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# In the order of microsoft/ANCE's model/SEED_Encoder/vocab.txt: no capital is a piece.
PIECES = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", *"!\"#$%&'()*+,-./0123456789:;<=>?@[]^_"]
PIECES += [*LETTERS, *"{|}~", *(f"##{letter}" for letter in LETTERS), "the"]
# A weight that is missing, and its name here.
MISSING = {HEAD[0]: HEAD[0], f"{SEED_BEFORE}.emb_layer_norm.weight": "roberta.embeddings.LayerNorm.weight"}
MISSING[f"{SEED_BEFORE}.layers.1.fc2.bias"] = "roberta.encoder.layer.1.output.dense.bias"
KNOWN = [{"architectures": ["SEEDEncoderForMaskedLM"]}, {"model_type": "seed_encoder"}]
UNCASED = {"lowercase": True, "query": {"length_tokens": 24}, "document": {"length_tokens": 48}}


def ids(*pieces: str) -> list[list[int]]:
    return [[PIECES.index(piece) for piece in pieces]]


@pytest.fixture
def seed_release(ance, release):
    """A folder of SEED-Encoder with these weights beside the encoder's, and its tokenizer's file."""

    def write(weights: dict[str, torch.Tensor], called: str = "SEED-Encoder-pass-440000", **more):
        made = ance.towers.queries.transformer.config
        config = {theirs: getattr(made, ours) for ours, theirs in SEED_SHAPE.items()}
        dropout = {"dropout": 0.1, "attention_dropout": 0.1}
        others = {"max_positions": 512, "pad_token_id": 1, "activation_fn": "gelu", **dropout, **more}
        without = ("architectures", "model_type", *SEED_SHAPE)
        folder = release(weights, called, without=without, **config, **others)
        for name in ("vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"):
            (folder / name).unlink()
        (folder / "vocab.txt").write_text("\n".join(PIECES))
        return folder

    return write


def test_seed_encoder_under_fairseqs_names(ance, seed_release, start, saved, records, caplog):
    """As ANCE, with the classifier that its class has, too."""
    beside = {"classification_heads.dense": (32, 32), "classification_heads.out_proj": (2, 32)}
    weights = {f"{name}.weight": torch.zeros(shape) for name, shape in beside.items()}
    weights |= {f"{name}.bias": torch.zeros(shape[0]) for name, shape in beside.items()}
    folder = seed_release({**seed_weights(ance), **weights}, architectures=["SEEDEncoderDot_NLL_LN"])
    started = start(folder, projection=16, tokenization=UNCASED)
    found, weights = weights_of(started), weights_of(ance)
    assert found["roberta.embeddings.token_type_embeddings.weight"].eq(0).all()
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], value) for name, value in weights.items() if "token_type" not in name)
    again = load_encoder(saved(started))
    assert again.tokenizer.key("query") == started.tokenizer.key("query")
    assert_same_vectors(again, started, records)
    assert caplog.messages == []


def test_its_vocabulary_has_no_capitals(ance, seed_release, start, caplog):
    """So texts are lower-cased, as in its code, but for the separator; whoever does not is told."""
    names = ["SEEDEncoderDot_NLL_LN"]
    folder = seed_release(seed_weights(ance), "SEED-Encoder-doc-800000", architectures=names)
    documents = {"length_tokens": 48, "template": "{url} [SEP] {title} [SEP] {text}"}

    def tokenizer(**settings):
        caplog.clear()
        tokenization = {**UNCASED, "max_characters": 10_000, "document": documents, **settings}
        return start(folder, projection=16, tokenization=tokenization).tokenizer

    found, record = tokenizer(), {"url": "A", "title": "THE", "text": "Fox"}
    assert found.specials["query"] == ((0,), (2,), 1)
    assert found.ids("query", [{"text": "The Fox"}]) == ids("the", "f", "##o", "##x")
    assert found.ids("document", [record]) == ids("a", "[SEP]", "the", "[SEP]", "f", "##o", "##x")
    assert caplog.messages == []
    assert tokenizer(lowercase=False).ids("query", [{"text": "The Fox"}]) == ids("[UNK]", "[UNK]")
    assert ["lowercase is False, and" in message for message in caplog.messages] == [True]
    tokenizer(document={"length_tokens": 48})
    assert ["template is '{title} {text}', and" in message for message in caplog.messages] == [True]


@pytest.mark.parametrize("missing, named", MISSING.items())
def test_a_weight_that_is_missing_is_named(ance, seed_release, start, missing, named):
    weights = {name: value for name, value in seed_weights(ance).items() if name != missing}
    folder = seed_release(weights, architectures=["SEEDEncoderDot_NLL_LN"])
    with pytest.raises(RuntimeError, match=f"no {named} of the expected shape"):
        start(folder, projection=16, tokenization=UNCASED)


def pretraining(hidden: int = 32) -> dict[str, torch.Tensor]:
    """What SEEDEncoderForMaskedLM has beside its encoder: a decoder with attention to it, and a head."""
    kinds, parts = ("self_attn", "encoder_attn"), ("k_proj", "v_proj", "q_proj", "out_proj")
    names = [f"layers.0.{kind}.{part}" for kind in kinds for part in parts]
    names += ["layers.0.final_layer_norm", "layers.0.fc1", "embed_tokens", "layer_norm", "output_projection"]
    beside = {f"decoder.{name}.weight": torch.zeros(hidden) for name in names}
    beside |= {f"lm_head.{name}": torch.zeros(hidden) for name in ("dense.weight", "weight", "bias")}
    return beside | {"decoder.version": torch.tensor([3.0])}


@pytest.mark.parametrize("known", KNOWN, ids=str)
def test_a_pretrained_seed_encoder_gets_a_new_head(ance, seed_release, start, saved, records, caplog, known):
    """Its config.json, as microsoft/ANCE has it (config_decoder_3_attn_2.json), names no model_type."""
    weights = {**seed_weights(ance, head=False), **pretraining()}
    folder = seed_release(weights, "SEED-Encoder-3-decoder-layers", **known)
    longer = {**UNCASED, "query": {"length_tokens": 128}}
    started = start(folder, projection=16, layer_norm=True, tokenization=longer)
    assert started.tokenizer.ids("query", [{"text": "The"}]) == ids("the")
    found, weights = weights_of(started), weights_of(ance)
    same = [name for name in weights if name not in HEAD and "token_type" not in name]
    assert all(torch.equal(found[name], weights[name]) for name in same)
    assert found[HEAD[0]].shape == (16, 32) and found[HEAD[0]].std() > 0 and caplog.messages == []
    assert_same_vectors(load_encoder(saved(started)), started, records)
    assert start(folder, tokenization=UNCASED).dimension == 32
