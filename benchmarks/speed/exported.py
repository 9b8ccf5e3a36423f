"""Contenders of the encoding benchmarks that run an exported transformer: onnxruntime and OpenVINO."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.speed.rounds import Contender, Rounds
from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.load_save import load_encoder

TEXTS_AT_ONCE = 32  # as sentence-transformers has it
INPUTS = ("input_ids", "attention_mask")
INT8 = "onnxruntime int8"
# Token ids and mask (B, T) by name -> hidden states (B, T, D)
Transformer = Callable[[Mapping[str, np.ndarray]], np.ndarray]


def contenders(side: Side, model: str, texts: str) -> list[Contender]:
    """`model` and `texts` are names in the contest's folder."""
    given = {"side": side, "model": model, "texts": texts}
    by_onnx, by_openvino = {**given, "runtime": "onnxruntime"}, {**given, "runtime": "openvino"}
    return [
        Contender("onnxruntime fp32", encode, by_onnx, ("onnxruntime", "onnx")),
        Contender(INT8, encode, {**by_onnx, "precision": "int8"}, ("onnxruntime", "onnx")),
        Contender("OpenVINO fp32", encode, by_openvino, ("openvino", "onnx")),
    ]


def encode(
    rounds: Rounds,
    folder: Path,
    side: Side,
    model: str,
    texts: str,
    runtime: Literal["onnxruntime", "openvino"],
    precision: Literal["fp32", "int8"] = "fp32",
) -> None:
    """Batches of texts of about the same length, mean pooling, vectors of length 1."""
    from transformers import AutoTokenizer

    length = load_encoder(folder / model).length_tokens(side)
    tokenizer = AutoTokenizer.from_pretrained(folder / model)
    transformer = _load(folder / model, folder / f"{side}-{runtime}-{precision}.onnx", runtime, precision)
    lines: list[str] = json.loads((folder / texts).read_text(encoding="utf-8"))
    order = sorted(range(len(lines)), key=lambda row: -len(lines[row]))
    for _ in rounds:
        vectors = []
        for start in range(0, len(lines), TEXTS_AT_ONCE):
            part = [lines[row] for row in order[start : start + TEXTS_AT_ONCE]]
            inputs = tokenizer(part, padding=True, truncation=True, max_length=length, return_tensors="np")
            mask = inputs["attention_mask"][:, :, None].astype(np.float32)
            vectors.append((transformer(inputs) * mask).sum(1) / mask.sum(1))
        found = np.concatenate(vectors)
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        rounds.output = found[np.argsort(order)]


def _load(model: Path, file: Path, runtime: str, precision: str) -> Transformer:
    """Export a model to `file`, and open it there.

    int8: quantized dynamically, as onnxruntime's documentation advises for transformers.
    """
    import torch

    export(model, file)
    threads = torch.get_num_threads()
    if runtime == "openvino":
        import openvino

        settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(openvino.convert_model(file), "CPU", settings)
        return lambda inputs: compiled({name: inputs[name] for name in INPUTS})[0]

    import onnxruntime

    if precision == "int8":
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(file, file, weight_type=QuantType.QInt8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, {name: inputs[name] for name in INPUTS})[0]


def export(model: Path, file: Path) -> None:
    """Write the transformer in a folder, from token ids and mask to hidden states, as ONNX."""
    import torch
    from transformers import AutoModel

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model: Any = AutoModel.from_pretrained(model, attn_implementation="eager")

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.model(input_ids, attention_mask=attention_mask).last_hidden_state
            return hidden

    ids = torch.ones((2, 9), dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    axes = {name: {0: "texts", 1: "tokens"} for name in (*INPUTS, "hidden")}
    names: dict[str, Any] = {"input_names": [*INPUTS], "output_names": ["hidden"], "dynamic_axes": axes}
    with torch.no_grad():  # the exporter by `dynamo` needs a package more
        torch.onnx.export(Hidden().eval(), (ids, mask), str(file), dynamo=False, **names)
