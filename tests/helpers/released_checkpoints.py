"""What tests of released checkpoints share: the names that weights have there, by hand, and vectors that are
the same.
"""

import numpy as np
import torch

LOWER = {
    "lowercase": True,
    "query": {"length_tokens": 24},
    "document": {"length_tokens": 48, "template": "{text}"},
}

HEAD = ["embeddingHead.weight", "embeddingHead.bias", "norm.weight", "norm.bias"]
EMBEDDINGS = [
    "embeddings.word_embeddings.weight",
    "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    "embeddings.LayerNorm.weight",
    "embeddings.LayerNorm.bias",
]
LAYER = [
    "attention.self.query.weight",
    "attention.self.query.bias",
    "attention.self.key.weight",
    "attention.self.key.bias",
    "attention.self.value.weight",
    "attention.self.value.bias",
    "attention.output.dense.weight",
    "attention.output.dense.bias",
    "attention.output.LayerNorm.weight",
    "attention.output.LayerNorm.bias",
    "intermediate.dense.weight",
    "intermediate.dense.bias",
    "output.dense.weight",
    "output.dense.bias",
    "output.LayerNorm.weight",
    "output.LayerNorm.bias",
]
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
SEED_LAYER = {
    "self_attn.q_proj.weight": "attention.self.query.weight",
    "self_attn.q_proj.bias": "attention.self.query.bias",
    "self_attn.k_proj.weight": "attention.self.key.weight",
    "self_attn.k_proj.bias": "attention.self.key.bias",
    "self_attn.v_proj.weight": "attention.self.value.weight",
    "self_attn.v_proj.bias": "attention.self.value.bias",
    "self_attn.out_proj.weight": "attention.output.dense.weight",
    "self_attn.out_proj.bias": "attention.output.dense.bias",
    "self_attn_layer_norm.weight": "attention.output.LayerNorm.weight",
    "self_attn_layer_norm.bias": "attention.output.LayerNorm.bias",
    "fc1.weight": "intermediate.dense.weight",
    "fc1.bias": "intermediate.dense.bias",
    "fc2.weight": "output.dense.weight",
    "fc2.bias": "output.dense.bias",
    "final_layer_norm.weight": "output.LayerNorm.weight",
    "final_layer_norm.bias": "output.LayerNorm.bias",
}
SEED_BEFORE = "seed_encoder.encoder.sentence_encoder"
SEED = {f"{SEED_BEFORE}.{theirs}": f"roberta.embeddings.{ours}" for theirs, ours in SEED_EMBEDDINGS.items()}
SEED |= {
    f"{SEED_BEFORE}.layers.{i}.{theirs}": f"roberta.encoder.layer.{i}.{ours}"
    for i in (0, 1)
    for theirs, ours in SEED_LAYER.items()
}


def weights_of(encoder) -> dict[str, torch.Tensor]:
    return dict(encoder.towers.queries.model.state_dict())


def ance_weights(encoder, prefix: str = "") -> dict[str, torch.Tensor]:
    """Under the names of microsoft/ANCE, or below a prefix."""
    weights = weights_of(encoder)
    return {prefix + name: weights[name] for name in ANCE}


def seed_weights(encoder, head: bool = True) -> dict[str, torch.Tensor]:
    """Under fairseq's names, which have no token types."""
    weights = weights_of(encoder)
    return {
        theirs: weights[ours] for theirs, ours in {**SEED, **{name: name for name in HEAD if head}}.items()
    }


def assert_same_vectors(encoder, expected, records, sides=("query", "document")):
    for side in sides:
        np.testing.assert_allclose(encoder.encode(records, side), expected.encode(records, side), atol=1e-5)
