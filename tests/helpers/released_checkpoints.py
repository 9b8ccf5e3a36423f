"""What tests of released checkpoints share: the weights' names there, by hand, and equal vectors."""

import numpy as np
import torch

DOCUMENT = {"length_tokens": 48, "template": "{text}"}
LOWER = {"lowercase": True, "query": {"length_tokens": 24}, "document": DOCUMENT}

HEAD = ["embeddingHead.weight", "embeddingHead.bias", "norm.weight", "norm.bias"]
EMBEDDINGS = [f"embeddings.{name}_embeddings.weight" for name in ("word", "position", "token_type")]
EMBEDDINGS += ["embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"]
# The parts of a layer here, and what fairseq calls them.
LAYER_PARTS = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}
LAYER = [f"{part}.{end}" for part in LAYER_PARTS for end in ("weight", "bias")]
BERT = [
    *EMBEDDINGS,
    *(f"encoder.layer.{i}.{name}" for i in (0, 1) for name in LAYER),
]  # and RoBERTa: the tiny models have two layers
ANCE = [*(f"roberta.{name}" for name in BERT), *HEAD]
BESIDE_ANCE = {  # of RobertaForSequenceClassification; 32 dimensions, two classes
    "roberta.pooler.dense.weight": (32, 32),
    "roberta.pooler.dense.bias": (32,),
    "classifier.dense.weight": (32, 32),
    "classifier.dense.bias": (32,),
    "classifier.out_proj.weight": (2, 32),
    "classifier.out_proj.bias": (2,),
}

SEED_EMBEDDINGS = {
    "embed_tokens.weight": "word_embeddings.weight",
    "embed_positions.weight": "position_embeddings.weight",
    "emb_layer_norm.weight": "LayerNorm.weight",
    "emb_layer_norm.bias": "LayerNorm.bias",
}
ENDS = [(*names, end) for names in LAYER_PARTS.items() for end in ("weight", "bias")]
SEED_LAYER = {f"{theirs}.{end}": f"{ours}.{end}" for ours, theirs, end in ENDS}
SEED_BEFORE = "seed_encoder.encoder.sentence_encoder"
SEED = {f"{SEED_BEFORE}.{theirs}": f"roberta.embeddings.{ours}" for theirs, ours in SEED_EMBEDDINGS.items()}
for i in (0, 1):
    layer, before = f"roberta.encoder.layer.{i}", f"{SEED_BEFORE}.layers.{i}"
    SEED |= {f"{before}.{theirs}": f"{layer}.{ours}" for theirs, ours in SEED_LAYER.items()}


def head_of(encoder) -> dict[str, torch.nn.Module]:
    """ANCE's linear layer and LayerNorm of the query tower, by their names in its release."""
    _, _, dense, norm = encoder.towers.queries.layers[:4]
    return {"embeddingHead": dense.linear, "norm": norm.norm}


def weights_of(encoder) -> dict[str, torch.Tensor]:
    """Under the names of microsoft/ANCE, which has no pooler."""
    parts = {"roberta": encoder.towers.queries.transformer, **head_of(encoder)}
    weights = {f"{part}.{name}": one for part, of in parts.items() for name, one in of.state_dict().items()}
    return {name: value for name, value in weights.items() if ".pooler." not in name}


def ance_weights(encoder, prefix: str = "") -> dict[str, torch.Tensor]:
    """Under the names of microsoft/ANCE, or below a prefix."""
    weights = weights_of(encoder)
    return {prefix + name: weights[name] for name in ANCE}


def seed_weights(encoder, head: bool = True) -> dict[str, torch.Tensor]:
    """Under fairseq's names, which have no token types."""
    weights = weights_of(encoder)
    return {theirs: weights[ours] for theirs, ours in {**SEED, **{one: one for one in HEAD if head}}.items()}


def assert_same_vectors(encoder, expected, records, sides=("query", "document")):
    for side in sides:
        np.testing.assert_allclose(encoder.encode(records, side), expected.encode(records, side), atol=1e-5)


def assert_equal_vectors(encoder, expected, records):
    for side in ("query", "document"):
        np.testing.assert_array_equal(encoder.encode(records, side), expected.encode(records, side))


def with_moved_documents(encoder):
    """Move the weights of the document tower; returns the encoder."""
    with torch.no_grad():
        for parameter in encoder.towers.documents.parameters():
            parameter.mul_(0.9)
    return encoder
