import numpy as np
import pytest
import torch
from helpers.small_set import make_tiny_bert
from transformers import AutoModel

from benchmarks.speed.exported import INPUTS, export

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


def test_an_exported_transformer_has_the_models_hidden_states_for_any_number_of_tokens(tmp_path):
    tiny_bert = make_tiny_bert(tmp_path / "bert")
    export(tiny_bert, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    model = AutoModel.from_pretrained(tiny_bert).eval()
    for texts, tokens in ((1, 3), (4, 20)):
        ids, mask = np.full((texts, tokens), 5), np.ones((texts, tokens), np.int64)
        mask[1:, tokens // 2 :] = 0
        [hidden] = session.run(None, dict(zip(INPUTS, (ids, mask), strict=True)))
        with torch.no_grad():
            expected = model(*map(torch.from_numpy, (ids, mask))).last_hidden_state.numpy()
        np.testing.assert_allclose(hidden[mask == 1], expected[mask == 1], atol=1e-4)
