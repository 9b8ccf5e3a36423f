"""ANCE's encoder: RoBERTa, then Linear and LayerNorm on the first token; Pyserini's stock class `ance`.

Source: Xiong et al. 2021, arXiv:2007.00808; key names as in microsoft/ANCE and Pyserini (`roberta`,
`embeddingHead`, `norm`).
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import nn
from torch.nn import functional

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders import family, released, weights
from pyserini_ance.encoders.family import Family, Switch, Tower, at
from pyserini_ance.encoders.layer_reduction import reduce_layers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, RobertaConfig

HEAD = ("embeddingHead.weight", "embeddingHead.bias", "norm.weight", "norm.bias")
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings.weight"


class RobertaAnceTower(Tower):
    needs_mask = False

    def __init__(self, model: Any, layer_norm: Switch, normalize: Switch):
        super().__init__()
        self.model, self.layer_norm, self.normalize = model, layer_norm, normalize
        self.dimension = model.config.head_dimension
        self.longest_input = family.longest_input(model)

    def forward(self, side: Side, ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        masked = family.attention_mask(self.model, mask)
        hidden = self.model.roberta(input_ids=ids, attention_mask=masked).last_hidden_state
        vectors = self.model.embeddingHead(hidden[:, 0].float())
        vectors = (self.model.norm(vectors) if at(side, self.layer_norm) else vectors).float()
        return functional.normalize(vectors, dim=-1) if at(side, self.normalize) else vectors


class RobertaAnce(Family):
    """RoBERTa or SEED-Encoder with ANCE's head.

    `layer_norm: query` with `normalize: true` is what DANCE's released code computes
    (thunlp/DANCE, model/models.py): its `query_emb` normalizes after the LayerNorm, its `body_emb` has no
    LayerNorm.
    """

    weight_files: ClassVar[int] = 2
    eager_on_cpu: ClassVar[bool] = True
    kind: Literal["roberta_ance"] = "roberta_ance"
    pooling: Literal["cls"] = "cls"
    """Always the first token."""
    dimension: PositiveInt = 768
    """The size of vectors."""
    layer_norm: Switch = True
    """Whether a LayerNorm follows the linear layer; `query` and `document`: of this side alone."""
    head: Literal["load", "new"] = "load"
    """Load the head with the initial weights, or draw a new one (for plain RoBERTa or SEED-Encoder)."""

    def build(self, source: str, side: Side, generator: torch.Generator) -> Tower:
        from transformers import PreTrainedConfig

        written = PreTrainedConfig.get_config_dict(source)[0]
        form = None
        if "head_dimension" not in written:  # not saved by `save`
            form = released.form_of(self.kind, source, written)
            if self.head == "load":
                form = form or released.ANCE
                released.warn_about_settings(form, source, self)
            elif form is not None:
                released.warn_about_settings(form, source, self, only=form.vocabulary)
        model = self._read(source, form, head_required=self.head == "load").model
        tower = RobertaAnceTower(reduce_layers(model, self.layers, source), self.layer_norm, self.normalize)
        if self.head == "new":
            with torch.no_grad():  # as microsoft/ANCE does, with the LayerNorm as the identity
                tower.model.embeddingHead.weight.normal_(0.0, 0.02, generator=generator)
                tower.model.embeddingHead.bias.zero_()
                tower.model.norm.weight.fill_(1.0)
                tower.model.norm.bias.zero_()
        return tower

    def load(self, folder: Path) -> Tower:
        return self._read(str(folder), None, head_required=True)

    def save(self, tower: Tower, folder: Path) -> None:
        """Write safetensors, and `pytorch_model.bin`, which Pyserini opens by name."""
        assert isinstance(tower, RobertaAnceTower)
        # By default, transformers would restore the names of the release.
        tower.model.save_pretrained(folder, save_original_format=False)
        state = {key: value.detach().cpu().contiguous() for key, value in tower.model.state_dict().items()}
        torch.save(state, folder / "pytorch_model.bin")

    def _read(self, source: str, form: released.Form | None, head_required: bool) -> RobertaAnceTower:
        weights.quiet_transformers()
        model_class: Any = _model_class()
        options: dict[str, Any] = {"dtype": torch.float32, "config": self._config(source, form)}
        options |= {"key_mapping": dict(form.names) if form else {}}
        options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
        model, report = model_class.from_pretrained(source, **options)
        mismatched = {key[0] if isinstance(key, tuple) else key for key in report["mismatched_keys"]}
        lacked = (key for key in {*report["missing_keys"], *mismatched} if ".pooler." not in key)
        missing = {key for key in lacked if head_required or key not in HEAD}
        if form is released.SEED and TOKEN_TYPES in missing:
            missing.remove(TOKEN_TYPES)
            model.roberta.embeddings.token_type_embeddings.weight.data.zero_()
        if missing:
            raise RuntimeError(
                f"{source} is not a complete ANCE checkpoint: no {', '.join(sorted(missing)[:4])} of the "
                "expected shape. To start from a plain RoBERTa or SEED-Encoder, set encoder.head=new; "
                "otherwise download the checkpoint again."
            )
        released.check_unexpected_weights(source, report["unexpected_keys"], form)
        return RobertaAnceTower(model, self.layer_norm, self.normalize)

    def _config(self, source: str, form: released.Form | None) -> "RobertaConfig":
        from transformers import RobertaConfig

        written = RobertaConfig.get_config_dict(source)[0]
        model_type = written.get("model_type", "roberta")  # the first ANCE checkpoints have none
        if form is released.SEED:
            config = RobertaConfig(**_seed_shape(written))
        elif "roberta" in model_type:
            config = RobertaConfig.from_pretrained(source)
        else:
            raise ValueError(
                f"{source} is a {model_type} model; encoder.kind roberta_ance needs a RoBERTa or "
                "SEED-Encoder; for any other model of AutoModel set encoder.kind=transformer"
            )
        size = written.get("output_embedding_size", config.hidden_size)
        if form is released.STAR and self.head == "load" and size != self.dimension:
            raise ValueError(
                f"{source} gives vectors of {size} numbers, but encoder.dimension is {self.dimension}; set "
                f"it to {size}"
            )
        config.head_dimension = self.dimension
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
            self.roberta = RobertaModel(config, add_pooling_layer=False)
            self.embeddingHead = nn.Linear(config.hidden_size, config.head_dimension)
            self.norm = nn.LayerNorm(config.head_dimension)
            self.post_init()

    return AnceModel


def _seed_shape(written: dict[str, Any]) -> dict[str, Any]:
    """SEED-Encoder's configuration as a RoBERTa's; fairseq counts positions from the first token."""
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
