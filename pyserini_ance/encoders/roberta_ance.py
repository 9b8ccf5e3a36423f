"""ANCE's encoder: RoBERTa, then Linear and LayerNorm on the first token; stock Pyserini class `ance`.

Source: Xiong et al. 2021, arXiv:2007.00808; key names as in microsoft/ANCE and Pyserini (`roberta`, `embeddingHead`, `norm`).
"""

from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import nn
from torch.nn import functional

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.family import Family, Switch, Tower, at, longest_input, quiet_transformers
from pyserini_ance.encoders.released import ANCE, SEED, STAR, Form, form_of, refuse_unexpected, tell_reading, tell_vectors

HEAD = ("embeddingHead.weight", "embeddingHead.bias", "norm.weight", "norm.bias")
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings.weight"


class RobertaAnceTower(Tower):
    def __init__(self, model, layer_norm: Switch, l2: Switch):
        super().__init__()
        self.model, self.layer_norm, self.l2 = model, layer_norm, l2
        self.dimension = model.config.head_dimension
        self.longest_input = longest_input(model)

    def forward(self, side: Side, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.model.roberta(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors = self.model.embeddingHead(hidden[:, 0])
        vectors = (self.model.norm(vectors) if at(side, self.layer_norm) else vectors).float()
        return functional.normalize(vectors, dim=-1) if at(side, self.l2) else vectors


class RobertaAnce(Family):
    """`head: load` demands the head in the starting weights, `head: new` draws one (to start from plain RoBERTa or SEED-Encoder).

    `layer_norm: {query: true, document: false}` with `l2: true` is what DANCE's released code computes (thunlp/DANCE,
    model/models.py): its `query_emb` normalises after the LayerNorm, its `body_emb` leaves the LayerNorm out.
    """

    weight_files: ClassVar[int] = 2
    kind: Literal["roberta_ance"] = "roberta_ance"
    pooling: Literal["cls"] = "cls"
    dimension: PositiveInt = 768
    layer_norm: Switch = True
    head: Literal["load", "new"] = "load"

    def build(self, source: str, side: Side, generator: torch.Generator) -> Tower:
        from transformers import PreTrainedConfig

        written = PreTrainedConfig.get_config_dict(source)[0]
        form = None
        if "head_dimension" not in written:  # not saved by us
            form = form_of(self.kind, source, written)
            if self.head == "load":
                form = form or ANCE
                tell_reading(form, source, self.tokenization)
                tell_vectors(form, source, self)
            elif form is not None:
                tell_reading(form, source, self.tokenization, only=form.vocabulary)
        tower = self._read(source, form, head_required=self.head == "load")
        if self.head == "new":
            _draw_head(tower.model, generator)
        return tower

    def load(self, folder: Path) -> Tower:
        return self._read(str(folder), None, head_required=True)

    def save(self, tower: Tower, folder: Path) -> None:
        """Write safetensors and, since Pyserini opens `pytorch_model.bin` by name, that file too."""
        tower.model.save_pretrained(folder, save_original_format=False)  # else under the names that a release had
        state = {key: value.detach().cpu().contiguous() for key, value in tower.model.state_dict().items()}
        torch.save(state, folder / "pytorch_model.bin")

    def _read(self, source: str, form: Form | None, head_required: bool) -> Tower:
        quiet_transformers()
        config, names = self._config(source, form), dict(form.names) if form else {}
        model, report = _model_class().from_pretrained(
            source, config=config, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True, key_mapping=names
        )
        wrong = {key[0] if isinstance(key, tuple) else key for key in report["mismatched_keys"]}
        lost = {k for k in {*report["missing_keys"], *wrong} if ".pooler." not in k and (head_required or k not in HEAD)}
        if form is SEED and TOKEN_TYPES in lost:
            lost.remove(TOKEN_TYPES)
            model.roberta.embeddings.token_type_embeddings.weight.data.zero_()
        if lost:
            raise RuntimeError(
                f"{source} is not a complete ANCE checkpoint: no {', '.join(sorted(lost)[:4])} of the expected shape. "
                f"To start from a plain RoBERTa or SEED-Encoder, set encoder.head=new; otherwise fetch the checkpoint again."
            )
        refuse_unexpected(source, report["unexpected_keys"], form)
        return RobertaAnceTower(model, self.layer_norm, self.l2)

    def _config(self, source: str, form: Form | None):
        from transformers import RobertaConfig

        written = RobertaConfig.get_config_dict(source)[0]
        model_type = written.get("model_type", "roberta")  # the first ANCE checkpoints name none
        if form is SEED:
            config = RobertaConfig(**_seed_shape(written))
        elif "roberta" in model_type:
            config = RobertaConfig.from_pretrained(source)
        else:
            raise ValueError(
                f"{source} is a {model_type} model; encoder.kind roberta_ance needs a RoBERTa or SEED-Encoder; for any other that Hugging Face's "
                f"AutoModel knows, set encoder.kind=transformer"
            )
        if form is STAR and self.head == "load" and (size := written.get("output_embedding_size", config.hidden_size)) != self.dimension:
            raise ValueError(f"{source} gives vectors of {size} numbers, but encoder.dimension is {self.dimension}; set it to {size}")
        config.head_dimension = self.dimension
        return config


@cache
def _model_class() -> type:
    """Defined on first use, so that importing this file does not import transformers."""
    from transformers import PreTrainedModel, RobertaConfig, RobertaModel

    class AnceModel(PreTrainedModel):
        config_class = RobertaConfig
        base_model_prefix = "roberta"

        def __init__(self, config):
            super().__init__(config)
            self.roberta = RobertaModel(config, add_pooling_layer=False)
            self.embeddingHead = nn.Linear(config.hidden_size, config.head_dimension)
            self.norm = nn.LayerNorm(config.head_dimension)
            self.post_init()

    return AnceModel


def _draw_head(model, generator: torch.Generator) -> None:
    """N(0, 0.02) and zero bias, as microsoft/ANCE initialises it; the LayerNorm starts as the identity."""
    with torch.no_grad():
        model.embeddingHead.weight.normal_(0.0, 0.02, generator=generator)
        model.embeddingHead.bias.zero_()
        model.norm.weight.fill_(1.0)
        model.norm.bias.zero_()


def _seed_shape(written: dict[str, Any]) -> dict[str, Any]:
    """SEED-Encoder's configuration as a RoBERTa's: fairseq counts positions without those that come before the first."""
    padding = written["pad_token_id"]
    return {
        "vocab_size": written["vocab_size"],
        "hidden_size": written["encoder_embed_dim"],
        "num_hidden_layers": written["encoder_layers"],
        "num_attention_heads": written["encoder_attention_heads"],
        "intermediate_size": written["encoder_ffn_embed_dim"],
        "hidden_act": written["activation_fn"],
        "hidden_dropout_prob": written["dropout"],
        "attention_probs_dropout_prob": written["attention_dropout"],
        "max_position_embeddings": written["max_positions"] + padding + 1,
        "pad_token_id": padding,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
    }
