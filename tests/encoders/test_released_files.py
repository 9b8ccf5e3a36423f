"""Tiny checkpoints of DPR, ANCE-Tele and Tevatron; vectors against plain BERTs of the same weights."""

import argparse
import collections
import json
import logging
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.released_checkpoints import BERT, assert_same_vectors
from transformers import BertModel, BertTokenizer

from pyserini_ance.encoders.initial import initial_encoder, initial_tokenizer
from pyserini_ance.encoders.load_save import load_encoder
from pyserini_ance.runs.any_encoder import load_any_encoder

SEED = 1
PAIR = {"query": {"length_tokens": 24}, "document": {"length_tokens": 48, "template": "{title} [SEP] {text}"}}
POOLER = {"pooler.dense.weight": (32, 32), "pooler.dense.bias": (32,)}
QUESTION, CONTEXT = "question_encoder.bert_model.", "ctx_encoder.bert_model."
LACKED = "encoder.layer.1.output.dense.weight"


@pytest.fixture(scope="module")
def towers(tiny_bert) -> dict[str, dict[str, torch.Tensor]]:
    """A BERT's weights for each side, under BERT's names; those of documents are a tenth smaller."""
    weights, scales = BertModel.from_pretrained(tiny_bert).state_dict(), {"queries": 1.0, "documents": 0.9}
    return {side: {name: weights[name] * scale for name in BERT} for side, scale in scales.items()}


def bert_folder(tiny_bert, folder, weights: dict[str, torch.Tensor], tokenizer: bool = True, **config):
    """Write a folder with these weights, settings of config.json, and BERT's tokenizer if wanted."""
    folder.mkdir(parents=True, exist_ok=True)
    written = json.loads((tiny_bert / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**written, **config}))
    torch.save(weights, folder / "pytorch_model.bin")
    if tokenizer:
        BertTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def start(config):
    given = {"tokenization": PAIR}
    return lambda model, **more: initial_encoder(config(model, **{**given, **more}), SEED)


@pytest.fixture
def expected(start, towers, tiny_bert, tmp_path):
    """The two towers as plain BERTs."""
    pair = {side: bert_folder(tiny_bert, tmp_path / "pair" / side, towers[side]) for side in towers}
    return start(pair["queries"], tied=False, document={"model": pair["documents"]})


@pytest.fixture
def dpr_folders(towers, tiny_bert, tmp_path):
    """As castorini/ance-dpr-*-multi: Hugging Face's DPR classes, with unused poolers. Write without some."""

    def write(missing: tuple[str, ...] = (), **more: torch.Tensor):
        for side, name, prefix in (("queries", "question", QUESTION), ("documents", "context", CONTEXT)):
            weights = {prefix + key: value for key, value in towers[side].items()}
            weights |= {prefix + key: torch.zeros(shape) for key, shape in POOLER.items()} | more
            weights[prefix + "embeddings.position_ids"] = torch.arange(128)[None]
            kept = {key: value for key, value in weights.items() if key not in missing}
            config = {"model_type": "dpr", "projection_dim": 0}
            config["architectures"] = [f"DPR{name.title()}Encoder"]
            bert_folder(tiny_bert, tmp_path / f"ance-dpr-{name}-multi", kept, **config)
        return tmp_path / "ance-dpr-question-multi", tmp_path / "ance-dpr-context-multi"

    return write


def test_dpr_folders(dpr_folders, expected, start, saved, records, caplog):
    question, context = dpr_folders()
    started = start(question, tied=False, document={"model": str(context)})
    assert_same_vectors(started, expected, records)
    folder = saved(started)
    assert_same_vectors(load_encoder(folder), expected, records)
    assert BertModel.from_pretrained(folder / "documents").config.model_type == "bert"
    assert caplog.messages == []
    lengths = {"length_tokens": {side: one["length_tokens"] for side, one in PAIR.items()}}
    alone = load_any_encoder(context, side="document", given=lengths)
    assert np.array_equal(alone.encode(records, "document"), started.encode(records, "document"))
    with pytest.raises(ValueError, match="is a DPR encoder of the query side; set encoder.model to"):
        load_any_encoder(question, side="document")
    with pytest.raises(ValueError, match="is a DPR encoder of the document side; set encoder.model to"):
        start(context)
    start(question)
    assert "question-multi is DPR's tower of one side; texts of the other side need" in caplog.text


@pytest.mark.parametrize(("tower", "prefix"), [("question", QUESTION), ("context", CONTEXT)])
def test_a_weight_that_a_dpr_folder_lacks_or_has_beyond_is_named(dpr_folders, start, tower, prefix):
    beyond = "question_encoder.encode_proj.weight"
    for missing, more, message in (
        ((prefix + LACKED,), {}, f"ance-dpr-{tower}-multi lacks 1 weights .*, first {LACKED}"),
        ((), {beyond: torch.zeros(8, 32)}, f"1 weights that this encoder lacks, first {beyond}"),
    ):
        question, context = dpr_folders(missing, **more)
        with pytest.raises(RuntimeError, match=message):
            start(question, tied=False, document={"model": str(context)})


def dpr_file(towers, path, **more: torch.Tensor):
    """As facebookresearch/DPR and microsoft/ANCE save: both towers, an optimiser, where training stood."""
    model = {f"question_model.{name}": value for name, value in towers["queries"].items()}
    model |= {f"ctx_model.{name}": value for name, value in towers["documents"].items()}
    for tower in ("question_model.", "ctx_model."):
        model |= {tower + name: torch.zeros(shape) for name, shape in POOLER.items()}
        model[tower + "embeddings.position_ids"] = torch.arange(128)[None]
    beside = {"optimizer_dict": {"state": {}}, "epoch": 3, "encoder_params": {"projection_dim": 0}}
    torch.save({"model_dict": {**model, **more}, **beside}, path)
    return path


@pytest.fixture(scope="module")
def start_file(start, tiny_bert):
    return lambda file: start(file, tied=False, base=str(tiny_bert))


def test_a_dpr_file_of_both_towers(towers, expected, config, start, start_file, records, tiny_bert, tmp_path):
    file = dpr_file(towers, tmp_path / "multi.cp")
    assert_same_vectors(start_file(file), expected, records)
    with pytest.raises(ValueError, match=r"multi.cp contains two towers; set encoder.tied=false"):
        start(file, base=str(tiny_bert))
    with pytest.raises(FileNotFoundError, match=r"multi.cp has no tokenizer; pass .* encoder.base=NAME"):
        initial_tokenizer(config(file, tied=False, tokenization=PAIR))


class Touches:
    """A pickle that writes a file when it is loaded as it asks to be."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("zipped", [True, False])
def test_what_is_beside_weights_of_dpr_is_not_read(towers, expected, start_file, records, tmp_path, zipped):
    """As saved by facebookresearch/DPR with other versions of its libraries; also in torch's older format."""
    file = dpr_file(towers, tmp_path / "multi.cp")
    content = torch.load(file, weights_only=True)
    content["model_dict"] = collections.OrderedDict(content["model_dict"])
    content["encoder_params"] = {"rate": np.float64(1), "shape": np.zeros(3), "args": argparse.Namespace(a=1)}
    content["optimizer_dict"] = {"state": collections.Counter("ab"), "kinds": {Path("x"), logging.getLogger}}
    content["scheduler_dict"] = Touches(tmp_path / "written")
    content["more"] = [collections.deque([1, 2]), complex(1, 2), bytearray(b"x"), slice(1)]
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    assert_same_vectors(start_file(file), expected, records)
    assert not (tmp_path / "written").exists()


def test_a_file_that_is_no_dpr_checkpoint(towers, start_file, tmp_path):
    file = dpr_file(towers, tmp_path / "x.cp", **{"question_model.encode_proj.bias": torch.zeros(8)})
    with pytest.raises(RuntimeError, match="1 weights that this encoder lacks, first encode_proj.bias"):
        start_file(file)
    with zipfile.ZipFile(tmp_path / "x.cp", "w") as program:  # torch.load starts files with this member
        program.writestr("x/constants.pkl", b"")
    with pytest.raises(RuntimeError, match="cannot be read as a DPR checkpoint: .*TorchScript program"):
        start_file(tmp_path / "x.cp")


def with_pooler(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**weights, **{name: torch.ones(shape) for name, shape in POOLER.items()}}


def test_ance_tele_of_a_tower_is_bert(towers, tiny_bert, expected, start, saved, records, tmp_path, caplog):
    folder = tmp_path / "OpenMatch" / "ance-tele_msmarco_qry-psg-encoder"
    bert_folder(tiny_bert, folder, with_pooler(towers["queries"]), architectures=["BertModel"])
    started = start(folder)
    assert_same_vectors(started, expected, records, sides=("query",))
    assert_same_vectors(load_encoder(saved(started)), started, records)
    assert started.towers.tied and caplog.messages == []
    start(folder, tokenization={**PAIR, "lowercase": True, "document": {"length_tokens": 128}})
    assert len(caplog.messages) == 2 and "lowercase is True" in caplog.messages[0]
    assert "document.template is '{title} {text}'" in caplog.messages[1]


@pytest.fixture
def tevatron(towers, tiny_bert, tmp_path):
    """Two towers without tokenizers, which lie above them."""
    for name, side in (("query_model", "queries"), ("passage_model", "documents")):
        weights, settings = with_pooler(towers[side]), {"architectures": ["BertModel"]}
        bert_folder(tiny_bert, tmp_path / "tevatron" / name, weights, tokenizer=False, **settings)
    return tmp_path / "tevatron"


def test_a_pair_as_tevatron_and_ance_tele_write_it(tevatron, expected, start, records, tiny_bert, caplog):
    """The folders of ANCE-Tele's NQ have no tokenizer files either."""
    towers = [tevatron.parent / f"ance-tele_nq_{name}-encoder" for name in ("qry", "psg")]
    for tower, name in zip(towers, ("query_model", "passage_model"), strict=True):
        shutil.copytree(tevatron / name, tower)
    pair = {"tied": False, "document": {"model": str(towers[1])}}
    for model, settings in ((tevatron, {"tied": False}), (towers[0], pair)):
        with pytest.raises(FileNotFoundError, match="(query_model|qry-encoder) has no tokenizer"):
            start(model, **settings)
        assert_same_vectors(start(model, **settings, base=str(tiny_bert)), expected, records)
    assert caplog.messages == []
    BertTokenizer.from_pretrained(tiny_bert).save_pretrained(tevatron)
    assert_same_vectors(start(tevatron, tied=False), expected, records)
    with pytest.raises(ValueError, match="tevatron has two towers; set encoder.tied=false"):
        start(tevatron)


def test_the_linear_head_of_tevatron(tevatron, expected, start, records, tiny_bert):
    shapes = {"weight": (8, 32), "bias": (8,)}
    heads = {f"linear_{side}.{name}": torch.randn(shape) for side in "qp" for name, shape in shapes.items()}
    torch.save(heads, tevatron / "pooler.pt")
    started = start(tevatron, projection=8, tied=False, base=str(tiny_bert))
    for side, letter in (("query", "q"), ("document", "p")):
        weight, bias = (heads[f"linear_{letter}.{name}"].numpy() for name in ("weight", "bias"))
        projected = expected.encode(records, side) @ weight.T + bias
        np.testing.assert_allclose(started.encode(records, side), projected, atol=1e-4)
    assert start(tevatron, tied=False, base=str(tiny_bert)).dimension == 8
    with pytest.raises(ValueError, match="projects 32 numbers to 8, but encoder.projection is 4"):
        start(tevatron, tied=False, base=str(tiny_bert), projection=4)
    del heads["linear_p.bias"]
    torch.save(heads, tevatron / "pooler.pt")
    with pytest.raises(RuntimeError, match="pooler.pt contains linear_.*; expected weight and bias"):
        start(tevatron, tied=False, base=str(tiny_bert), projection=8)
