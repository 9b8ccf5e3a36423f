"""Tiny checkpoints with the files, names and shapes of those that were released; vectors against the model they were made from."""

import json
import logging
import re
import shutil
from string import ascii_lowercase

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import BertModel, BertTokenizer, DPRConfig, DPRContextEncoder, DPRQuestionEncoder

from pyserini_ance.encoders.checkpoint import load_encoder, start_encoder, start_tokenizer
from pyserini_ance.encoders.released import SEED_NAMES

SEED, HEAD = 1, "embeddingHead"
LOWER = {"lowercase": True, "query": {"length_tokens": 24}, "document": {"length_tokens": 48, "template": "{text}"}}
PAIR = {"query": {"length_tokens": 24}, "document": {"length_tokens": 48, "template": "{title} [SEP] {text}"}}
SEED_SHAPE = {
    "vocab_size": "vocab_size", "hidden_size": "encoder_embed_dim", "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads", "intermediate_size": "encoder_ffn_embed_dim",
}  # fmt: skip


@pytest.fixture(scope="module")
def ance(family, tiny_roberta):
    """An encoder with a head that is not the identity anywhere."""
    encoder = start_encoder(family("roberta_ance", tiny_roberta, head="new", dimension=16, tokenization=LOWER), SEED)
    with torch.no_grad():
        for parameter in (encoder.towers.queries.model.embeddingHead, encoder.towers.queries.model.norm):
            parameter.weight.normal_(), parameter.bias.normal_()
    return encoder


@pytest.fixture
def release(tiny_roberta, tmp_path):
    """A folder with these weights, this configuration and RoBERTa's tokenizer files."""

    def write(weights: dict[str, torch.Tensor], without: tuple[str, ...] = ("architectures",), **config):
        shutil.copytree(tiny_roberta, tmp_path / "release", ignore=shutil.ignore_patterns("*.safetensors"))
        written = json.loads((tiny_roberta / "config.json").read_text())
        written = {**{key: value for key, value in written.items() if key not in without}, **config}
        (tmp_path / "release" / "config.json").write_text(json.dumps(written))
        torch.save(weights, tmp_path / "release" / "pytorch_model.bin")
        return tmp_path / "release"

    return write


def weights_of(encoder) -> dict[str, torch.Tensor]:
    return dict(encoder.towers.queries.model.state_dict())


def unused(hidden: int = 32) -> dict[str, torch.Tensor]:
    """What RobertaForSequenceClassification saves beside, and a buffer of older releases."""
    shapes = {"roberta.pooler.dense": (hidden, hidden), "classifier.dense": (hidden, hidden), "classifier.out_proj": (2, hidden)}
    weights = {f"{name}.weight": torch.randn(shape) for name, shape in shapes.items()}
    biases = {f"{name}.bias": torch.randn(shape[0]) for name, shape in shapes.items()}
    return {**weights, **biases, "roberta.embeddings.position_ids": torch.arange(514)[None]}


def assert_same_vectors(encoder, expected, records, sides=("query", "document")):
    for side in sides:
        np.testing.assert_allclose(encoder.encode(records, side), expected.encode(records, side), atol=1e-5)


@pytest.mark.parametrize("prefix", ["", "ance_encoder."])
def test_ance_with_a_classifier_and_a_pooler_beside(ance, release, family, saved, records, prefix):
    """microsoft/ANCE saves bare names, castorini's folders say AnceEncoder, whose prefix Pyserini knows, too."""
    architecture = {"architectures": ["AnceEncoder"]} if prefix else {}
    folder = release({prefix + name: value for name, value in {**weights_of(ance), **unused()}.items()}, **architecture)
    started = start_encoder(family("roberta_ance", folder, dimension=16, tokenization=LOWER), SEED + 1)
    assert_same_vectors(started, ance, records)
    folder = saved(started)
    assert_same_vectors(load_encoder(folder), ance, records)
    assert load_file(folder / "model.safetensors").keys() == weights_of(ance).keys()


def test_star_has_a_size_of_its_own(ance, release, family, records):
    folder = release(weights_of(ance), architectures=["RobertaDot_InBatch"], output_embedding_size=16)
    assert_same_vectors(start_encoder(family("roberta_ance", folder, dimension=16, tokenization=LOWER), SEED), ance, records)
    with pytest.raises(ValueError, match="gives vectors of 16 numbers, but encoder.dimension is 768; set it to 16"):
        start_encoder(family("roberta_ance", folder, tokenization=LOWER), SEED)


def test_a_head_that_is_missing_is_named(ance, release, family):
    folder = release({name: value for name, value in weights_of(ance).items() if name != "norm.bias"})
    with pytest.raises(RuntimeError, match="is not a complete ANCE checkpoint: no norm.bias of the expected shape.*fetch the checkpoint again"):
        start_encoder(family("roberta_ance", folder, dimension=16), SEED)


@pytest.mark.parametrize("name", ["whitening.weight", "roberta.encoder.layer.2.output.dense.bias"])
def test_a_weight_that_vectors_may_pass_through_is_refused(ance, release, family, name):
    folder = release({**weights_of(ance), name: torch.zeros(16)})
    with pytest.raises(RuntimeError, match=f"holds 1 weights that this encoder has no place for, first {name}"):
        start_encoder(family("roberta_ance", folder, dimension=16), SEED)


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


def test_a_new_head_may_be_of_another_size_than_the_one_released(ance, release, family):
    folder = release(weights_of(ance), architectures=["RobertaDot_InBatch"], output_embedding_size=16)
    assert start_encoder(family("roberta_ance", folder, head="new", dimension=8), SEED).dimension == 8


@pytest.fixture(scope="module")
def dpr(tmp_path_factory, tiny_bert):
    """A question and a context encoder of Hugging Face's DPR classes; the second's weights are a tenth smaller."""
    folder, base = tmp_path_factory.mktemp("dpr"), BertModel.from_pretrained(tiny_bert, add_pooling_layer=False)
    config = DPRConfig(**{key: value for key, value in base.config.to_dict().items() if key not in ("model_type", "architectures")})
    for name, loader, inner, scale in (("q", DPRQuestionEncoder, "question_encoder", 1.0), ("c", DPRContextEncoder, "ctx_encoder", 0.9)):
        model = loader(config)
        getattr(model, inner).bert_model.load_state_dict({key: value * scale for key, value in base.state_dict().items()})
        model.save_pretrained(folder / name)
        BertTokenizer.from_pretrained(tiny_bert).save_pretrained(folder / name)
    return folder


def bert_pair(tiny_bert, folder):
    """The same two towers as plain BERTs."""
    for name, scale in (("queries", 1.0), ("documents", 0.9)):
        model = BertModel.from_pretrained(tiny_bert)
        model.load_state_dict({key: value * scale if "pooler" not in key else value for key, value in model.state_dict().items()})
        model.save_pretrained(folder / name)
        BertTokenizer.from_pretrained(tiny_bert).save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory, tiny_bert):
    return bert_pair(tiny_bert, tmp_path_factory.mktemp("pair"))


@pytest.fixture
def expected(family, pair):
    return start_encoder(
        family("transformer", pair / "queries", tied=False, document_model=str(pair / "documents"), tokenization=PAIR), SEED
    )  # fmt: skip


def test_dpr_folders(dpr, expected, family, saved, records):
    started = start_encoder(family("transformer", dpr / "q", tied=False, document_model=str(dpr / "c"), tokenization=PAIR), SEED)
    assert_same_vectors(started, expected, records)
    folder = saved(started)
    assert_same_vectors(load_encoder(folder), expected, records)
    assert BertModel.from_pretrained(folder / "documents").config.model_type == "bert"
    with pytest.raises(ValueError, match="is a DPR encoder of the document side; set encoder.tied=false, with the question encoder as model"):
        start_encoder(family("transformer", dpr / "c", tokenization=PAIR), SEED)


def dpr_file(pair, path):
    """As facebookresearch/DPR and microsoft/ANCE save: both towers, an optimiser, where training stood."""
    towers = {"question_model": "queries", "ctx_model": "documents"}
    states = {tower: BertModel.from_pretrained(pair / folder).state_dict() for tower, folder in towers.items()}
    model = {f"{tower}.{name}": value for tower, state in states.items() for name, value in state.items()}
    positions = {f"{tower}.embeddings.position_ids": torch.arange(128)[None] for tower in towers}
    beside = {"optimizer_dict": {"state": {}}, "scheduler_dict": {}, "offset": 0, "epoch": 3, "encoder_params": {"projection_dim": 0}}
    torch.save({"model_dict": {**model, **positions}, **beside}, path)
    return path


def test_a_dpr_file_of_both_towers(pair, expected, family, records, tiny_bert, tmp_path):
    file = dpr_file(pair, tmp_path / "multi.cp")
    started = start_encoder(family("transformer", file, tied=False, base=str(tiny_bert), tokenization=PAIR), SEED)
    assert_same_vectors(started, expected, records)
    with pytest.raises(ValueError, match="multi.cp holds two towers; set encoder.tied=false"):
        start_encoder(family("transformer", file, base=str(tiny_bert), tokenization=PAIR), SEED)
    with pytest.raises(FileNotFoundError, match="multi.cp comes without a tokenizer; name .* encoder.base=NAME"):
        start_tokenizer(family("transformer", file, tied=False, tokenization=PAIR))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model_dict": {"bert.pooler.dense.bias": torch.zeros(2)}}, "is no DPR checkpoint: its model_dict has no question_model"),
        ({"model_dict": {"question_model.embeddings.LayerNorm.bias": torch.zeros(32)}}, "lacks .* weights of the encoder, first embeddings"),
        ([1], "cannot be read as a DPR checkpoint"),
        ({"model_dict": logging.getLogger}, "cannot be read as a DPR checkpoint"),
    ],
)
def test_a_file_that_is_no_dpr_checkpoint(family, tiny_bert, tmp_path, content, message):
    torch.save(content, tmp_path / "x.cp")
    with pytest.raises(RuntimeError, match=message):
        start_encoder(family("transformer", tmp_path / "x.cp", tied=False, base=str(tiny_bert), tokenization=PAIR), SEED)


@pytest.fixture
def tevatron(pair, tmp_path, tiny_bert):
    """Two towers without tokenizers, which lie above them."""
    folder = tmp_path / "tevatron"
    for name, source in (("query_model", "queries"), ("passage_model", "documents")):
        shutil.copytree(pair / source, folder / name, ignore=shutil.ignore_patterns("*token*", "vocab*"))
    return folder


def test_a_pair_as_tevatron_writes_it(tevatron, expected, family, records, tiny_bert):
    with pytest.raises(FileNotFoundError, match="query_model comes without a tokenizer"):
        start_encoder(family("transformer", tevatron, tied=False, tokenization=PAIR), SEED)
    assert_same_vectors(start_encoder(family("transformer", tevatron, tied=False, base=str(tiny_bert), tokenization=PAIR), SEED), expected, records)
    BertTokenizer.from_pretrained(tiny_bert).save_pretrained(tevatron)
    assert_same_vectors(start_encoder(family("transformer", tevatron, tied=False, tokenization=PAIR), SEED), expected, records)
    with pytest.raises(ValueError, match="has two towers, query_model and passage_model; set encoder.tied=false"):
        start_encoder(family("transformer", tevatron, tokenization=PAIR), SEED)


def test_the_linear_head_of_tevatron(tevatron, expected, family, records, tiny_bert):
    heads = {f"linear_{side}.{name}": torch.randn(shape) for side in "qp" for name, shape in (("weight", (8, 32)), ("bias", (8,)))}
    torch.save(heads, tevatron / "pooler.pt")
    settings = {"tied": False, "base": str(tiny_bert), "tokenization": PAIR}
    started = start_encoder(family("transformer", tevatron, projection=8, **settings), SEED)
    for side, letter in (("query", "q"), ("document", "p")):
        projected = expected.encode(records, side) @ heads[f"linear_{letter}.weight"].numpy().T + heads[f"linear_{letter}.bias"].numpy()
        np.testing.assert_allclose(started.encode(records, side), projected, atol=1e-4)
    with pytest.raises(ValueError, match="pooler.pt of .*query_model projects 32 numbers to 8, but encoder.projection is None; set it to 8"):
        start_encoder(family("transformer", tevatron, **settings), SEED)


@pytest.mark.parametrize(
    ("architecture", "tokenization", "said"),
    [
        ("AnceEncoder", {"lowercase": True, "prefix_space": False, "query": {"length_tokens": 64}}, []),
        ("AnceEncoder", {"prefix_space": False}, ["lowercase is False, and .* was trained with True"]),
        ("RobertaDot", {"lowercase": True, "query": {"length_tokens": 65}}, ["length_tokens is 65, .* with 64", "prefix_space is None, .* True"]),
    ],
)
def test_settings_that_a_release_was_not_trained_under_are_told(ance, release, family, caplog, architecture, tokenization, said):
    folder = release(weights_of(ance), architectures=[architecture], output_embedding_size=16)
    start_encoder(family("roberta_ance", folder, dimension=16, tokenization=tokenization), SEED)
    assert len(caplog.messages) == len(said) and all(re.search(words, message) for words, message in zip(said, caplog.messages, strict=True))


def test_our_own_checkpoints_are_no_releases(ance, saved, family, caplog):
    start_encoder(family("roberta_ance", saved(ance), dimension=16, tokenization=LOWER), SEED)
    assert caplog.messages == []


def test_layers_of_sentence_transformers_behind_the_pooling_are_not_left_out(family, tiny_bert, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "sentences")
    modules = [{"type": f"sentence_transformers.models.{name}", "path": f"{i}_{name}"} for i, name in enumerate(("Pooling", "Normalize", "Dense"))]
    (folder / "modules.json").write_text(json.dumps(modules[:2]))
    start_encoder(family("transformer", folder), SEED)
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(RuntimeError, match="has layers behind its pooling, 2_Dense, which are not read"):
        start_encoder(family("transformer", folder), SEED)
