import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel

from benchmarks.speed.encoding import bert_flops


def test_useful_operations_are_those_that_torch_counts_without_padding():
    shape = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 80}
    config = BertConfig(**shape, attn_implementation="eager")
    model = BertModel(config, add_pooling_layer=False).eval()
    counted = 0
    for length in (7, 19):
        with FlopCounterMode(display=False) as counter, torch.inference_mode():
            model(torch.ones((1, length), dtype=torch.int64))
        counted += counter.get_total_flops()
    assert bert_flops(config.to_dict(), np.array([7, 19])) == counted > 0
