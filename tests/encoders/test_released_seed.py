"""SEED-Encoder's checkpoints, pretrained or as ANCE, written under fairseq's names."""

import re
from string import ascii_lowercase

import pytest
import torch
from encoders.releases import assert_same_vectors, weights_of

from pyserini_ance.encoders.checkpoint import load_encoder, start_encoder
from pyserini_ance.encoders.released import SEED_NAMES

SEED, HEAD = 1, "embeddingHead"
SEED_SHAPE = {
    "vocab_size": "vocab_size", "hidden_size": "encoder_embed_dim", "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads", "intermediate_size": "encoder_ffn_embed_dim",
}  # fmt: skip


def seed_weights(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Under fairseq's names, by the table read backwards, without token types."""
    found = {}
    for name, value in weights.items():
        for theirs, ours in SEED_NAMES.items():
            pattern = re.escape(ours).replace(r"\\1", r"(\d+)")
            if matched := re.match(pattern, name):
                layer = matched[1] if matched.groups() else ""
                name = theirs.strip("^").replace(r"(\d+)", layer).replace("\\", "") + name[matched.end() :]
                break
        found[name] = value
    return {name: value for name, value in found.items() if "token_type" not in name}


PIECES = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", *ascii_lowercase, *(f"##{letter}" for letter in ascii_lowercase), "The"]


@pytest.fixture
def seed_release(ance, release):
    """A folder of SEED-Encoder with these weights beside the encoder's, and its tokenizer's file."""

    def write(weights: dict[str, torch.Tensor], **more):
        config = {theirs: getattr(ance.towers.queries.model.config, ours) for ours, theirs in SEED_SHAPE.items()}
        dropout = {"dropout": 0.1, "attention_dropout": 0.1}
        others = {"max_positions": 512, "pad_token_id": 1, "activation_fn": "gelu", **dropout, **more}
        folder = release(weights, ("architectures", "model_type", *SEED_SHAPE), **config, **others)
        for name in ("vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"):
            (folder / name).unlink()
        (folder / "vocab.txt").write_text("\n".join(PIECES))
        return folder

    return write


def test_seed_encoder_under_fairseqs_names(ance, seed_release, family, saved, records):
    weights = weights_of(ance)
    named = seed_weights(weights)
    assert "seed_encoder.encoder.sentence_encoder.layers.1.self_attn.q_proj.weight" in named and not any("roberta" in name for name in named)
    folder = seed_release({**named, "classification_heads.dense.weight": torch.zeros(32, 32)}, model_type="seed_encoder")
    started = start_encoder(family("roberta_ance", folder, dimension=16), SEED)
    assert started.tokenizer.ids("query", [{"text": "The fox"}]) == [[PIECES.index(piece) for piece in ("The", "f", "##o", "##x")]]
    found, model = started.towers.queries.model.state_dict(), weights
    assert found["roberta.embeddings.token_type_embeddings.weight"].eq(0).all()
    assert all(torch.equal(found[name], model[name]) for name in model if "token_type" not in name) and found.keys() == model.keys()
    again = load_encoder(saved(started))
    assert again.tokenizer.key("query") == started.tokenizer.key("query")
    assert_same_vectors(again, started, records)


def pretraining(hidden: int = 32) -> dict[str, torch.Tensor]:
    """What SEEDEncoderForMaskedLM has beside its encoder: a decoder with attention to it, and a head."""
    vectors = ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"]
    matrices = [f"{kind}_attn.{part}_proj" for kind in ("self", "encoder") for part in ("k", "v", "q", "out")] + ["fc1", "fc2"]
    layer = {f"decoder.layers.0.{name}.weight": torch.zeros(hidden, hidden) for name in matrices}
    layer |= {f"decoder.layers.0.{name}.{part}": torch.zeros(hidden) for name in vectors for part in ("weight", "bias")}
    names = ["embed_tokens", "embed_positions", "layernorm_embedding", "layer_norm", "output_projection"]
    around = {"decoder.version": torch.tensor([3.0]), **{f"decoder.{name}.weight": torch.zeros(hidden) for name in names}}
    return {**layer, **around, **{f"lm_head.{name}": torch.zeros(hidden) for name in ("dense.weight", "layer_norm.weight", "weight", "bias")}}


@pytest.mark.parametrize("known", [{"architectures": ["SEEDEncoderForMaskedLM"]}, {"model_type": "seed_encoder"}], ids=["class", "type"])
def test_a_pretrained_seed_encoder_gets_a_new_head(ance, seed_release, family, saved, records, caplog, known):
    """Its config.json, as microsoft/ANCE has it (config_decoder_3_attn_2.json), names no model_type."""
    weights = {name: value for name, value in weights_of(ance).items() if name.startswith("roberta.")}
    folder = seed_release({**seed_weights(weights), **pretraining()}, **known)
    started = start_encoder(family("roberta_ance", folder, head="new", dimension=16, tokenization={"query": {"length_tokens": 128}}), SEED)
    assert started.tokenizer.ids("query", [{"text": "The"}]) == [[PIECES.index("The")]]
    found = started.towers.queries.model.state_dict()
    assert all(torch.equal(found[name], value) for name, value in weights.items() if "token_type" not in name)
    assert found[f"{HEAD}.weight"].shape == (16, 32) and found[f"{HEAD}.weight"].std() > 0 and caplog.messages == []
    assert_same_vectors(load_encoder(saved(started)), started, records)
    with pytest.raises(RuntimeError, match="no embeddingHead.bias, .* To start from a plain RoBERTa or SEED-Encoder, set encoder.head=new"):
        start_encoder(family("roberta_ance", folder, dimension=16), SEED)
    with pytest.raises(ValueError, match="is a SEED-Encoder, which Hugging Face does not know; set encoder.kind=roberta_ance, .*encoder.head=new"):
        start_encoder(family("transformer", folder), SEED)
