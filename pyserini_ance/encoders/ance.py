"""ANCE's form of an encoder: RoBERTa, then Linear and LayerNorm on the first token.

Source: Xiong et al. 2021, arXiv:2007.00808; names of weights as in microsoft/ANCE and Pyserini (`roberta`,
`embeddingHead`, `norm`), whose stock class `ance` reads it.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import nn

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders import released
from pyserini_ance.encoders.config import at, config_of
from pyserini_ance.encoders.modules import dense_of
from pyserini_ance.encoders.sentence_transformers_files import modules_of
from pyserini_ance.encoders.weights import load_weights
from pyserini_ance.storage.files import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel, RobertaConfig

DIMENSION = 768
STOCK_FILE = "pytorch_model.bin"
FILES = ("Transformer", "Dense", "LayerNorm")  # modules with weights
HEAD = ("embeddingHead.weight", "embeddingHead.bias", "norm.weight", "norm.bias")
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings.weight"


def read_ance(
    source: str, form: released.Form, projection: int | None, needs_head: bool
) -> tuple[Any, list[nn.Module]]:
    """The RoBERTa of a checkpoint in fp32, and its Dense and LayerNorm; none for a model without a head.

    Raises RuntimeError if a weight is missing, also the whole head if it `needs_head`; ValueError for another
    model than RoBERTa or SEED-Encoder, and if its vectors have another size than `projection`.
    """
    from sentence_transformers.sentence_transformer.modules import LayerNorm

    config = _config(source, form, projection)
    model, report = load_weights(_model_class(), source, config=config, key_mapping=dict(form.names))
    lacked = {key for key in report["missing_keys"] if ".pooler." not in key}
    has_head = needs_head or not lacked.issuperset(HEAD)
    missing = lacked if has_head else lacked - set(HEAD)
    if form is released.SEED and TOKEN_TYPES in missing:
        missing.remove(TOKEN_TYPES)
        model.roberta.embeddings.token_type_embeddings.weight.data.zero_()
    if missing:
        raise RuntimeError(
            f"{source} is not a complete ANCE checkpoint: no {', '.join(sorted(missing)[:4])} of the "
            "expected shape; download the checkpoint again"
        )
    released.check_unexpected_weights(source, report["unexpected_keys"], form)
    norm = LayerNorm(config.head_dimension)
    norm.norm = model.norm
    head = [dense_of(model.embeddingHead.weight.data, model.embeddingHead.bias.data), norm]
    return model.roberta, head if has_head else []


def write_ance(folder: Path, side: Side) -> bool:
    """Write the file of weights that Pyserini's stock class opens by name, for a tower that has ANCE's form.

    Returns whether texts of a side have it: a RoBERTa, the first token's vector, a linear layer with a bias,
    and a LayerNorm.
    """
    modules, config = modules_of(str(folder), side), config_of(folder)
    has_head = config.pooling == "cls" and config.projection is not None and at(side, config.layer_norm)
    if not has_head or read_json(folder / "config.json")["model_type"] != "roberta":
        return False
    folders = {module.name: folder / module.folder for module in modules if module.name in FILES}
    weights = {name: load_file(path / "model.safetensors") for name, path in folders.items()}
    if "linear.bias" not in weights["Dense"]:
        return False
    names = {f"roberta.{name}": value for name, value in weights["Transformer"].items()}
    names |= {name.replace("linear", "embeddingHead"): value for name, value in weights["Dense"].items()}
    names |= weights["LayerNorm"]
    used = {name: value for name, value in names.items() if ".pooler." not in name}
    torch.save(used, folder / STOCK_FILE)
    return True


def _config(source: str, form: released.Form, projection: int | None) -> "RobertaConfig":
    from transformers import RobertaConfig

    written = RobertaConfig.get_config_dict(source)[0]
    model_type = written.get("model_type", "roberta")  # the first ANCE checkpoints have none
    if form is released.SEED:
        padding = written["pad_token_id"]
        config = RobertaConfig(
            vocab_size=written["vocab_size"],
            hidden_size=written["encoder_embed_dim"],
            num_hidden_layers=written["encoder_layers"],
            num_attention_heads=written["encoder_attention_heads"],
            intermediate_size=written["encoder_ffn_embed_dim"],
            hidden_act=written["activation_fn"],
            hidden_dropout_prob=written["dropout"],
            attention_probs_dropout_prob=written["attention_dropout"],
            # fairseq counts positions from the first token.
            max_position_embeddings=written["max_positions"] + padding + 1,
            pad_token_id=padding,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
        )
    elif "roberta" in model_type:
        config = RobertaConfig.from_pretrained(source)
    else:
        raise ValueError(f"{source} is a {model_type} model; ANCE's head is on a RoBERTa or SEED-Encoder")
    size = written.get("output_embedding_size") if form is released.STAR else None
    if size and projection and size != projection:
        raise ValueError(
            f"{source} gives vectors of {size} numbers, but encoder.projection is {projection}; set it "
            f"to {size}"
        )
    config.head_dimension = projection or size or DIMENSION
    return config


@cache
def _model_class() -> "type[PreTrainedModel]":
    """The model class, defined on first use, because importing transformers is slow."""
    from transformers import PreTrainedModel, RobertaConfig, RobertaModel

    class AnceModel(PreTrainedModel):
        config_class = RobertaConfig
        base_model_prefix = "roberta"
        # Without these, transformers computes attention by itself, on every device.
        _supports_sdpa = _supports_flash_attn = _supports_attention_backend = True

        def __init__(self, config: "RobertaConfig"):
            super().__init__(config)
            self.roberta = RobertaModel(config)
            self.embeddingHead = nn.Linear(config.hidden_size, config.head_dimension)
            self.norm = nn.LayerNorm(config.head_dimension)
            self.post_init()

    return AnceModel
