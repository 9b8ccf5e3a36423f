"""Any Hugging Face encoder with CLS or mean pooling, and optionally a projection and normalization.

Pyserini's stock classes for it are `auto` and `dpr`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from pydantic import PositiveInt, model_validator
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders import family, hub, released
from pyserini_ance.encoders import sentence_transformers_import as st
from pyserini_ance.encoders.family import SIDE_FILE, Family, Switch, Tower, at
from pyserini_ance.encoders.layer_reduction import reduce_layers
from pyserini_ance.encoders.weights import load_weights

PROJECTION = "projection.safetensors"


class TransformerTower(Tower):
    """A Hugging Face model, pooling, and optionally a linear layer."""

    needs_mask = False

    def __init__(self, backbone: Any, pooling: str, normalize: Switch, projection: nn.Linear | None):
        super().__init__()
        self.backbone, self.projection = backbone, projection
        self.pooling, self.normalize = pooling, normalize
        self.dimension = projection.out_features if projection else backbone.config.hidden_size
        self.longest_input = family.longest_input(backbone)

    def forward(self, side: Side, ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        masked = family.attention_mask(self.backbone, mask)
        hidden = self.backbone(input_ids=ids, attention_mask=masked).last_hidden_state.float()
        vectors = family.pool(hidden, mask, self.pooling)
        vectors = self.projection(vectors).float() if self.projection else vectors
        return functional.normalize(vectors, dim=-1) if at(side, self.normalize) else vectors


class Transformer(Family):
    """Any encoder that AutoModel supports. A projection is saved in a file next to the model's."""

    kind: Literal["transformer"] = "transformer"
    projection: PositiveInt | None = None
    """The size of vectors after a linear layer on the pooled vector; null: no such layer."""

    @model_validator(mode="before")
    @classmethod
    def read_sentence_transformers(cls, values: Any) -> Any:
        """Take what is left out from the files of a sentence-transformers model that is here: pooling,
        normalize, projection, two towers, prompts and lengths."""
        model = values.get("model") if isinstance(values, dict) else None
        if not isinstance(model, str):
            return values
        documents = values.get("document_model")
        try:
            source = hub.resolve_model(model)
            documents = hub.resolve_model(documents) if isinstance(documents, str) else None
        except FileNotFoundError:  # said when the weights are loaded
            return values
        if (Path(source) / SIDE_FILE).exists():
            return values
        settings = st.sentence_transformers_settings(source, documents=documents, given=_keys(values))
        made = family.completed(values, settings)
        known = get_args(cls.model_fields["pooling"].annotation)
        if "pooling" not in values and made.get("pooling", "cls") not in known:
            raise ValueError(f"{model} pools by {made['pooling']!r}; set pooling to cls or mean")
        return made

    def build(self, source: str, side: Side, generator: torch.Generator) -> Tower:
        """Build a tower; a projection or pooler that the source lacks is drawn from `generator`.

        Vectors do not use the pooler, but the hash of the weights includes it.
        """
        is_saved = (Path(source) / SIDE_FILE).exists()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed())
            backbone = self._saved(source) if is_saved else self._released(source, side)
        backbone = reduce_layers(backbone, self.layers, source)
        projection = self._linear(backbone)
        if (file := Path(source) / PROJECTION).exists():
            _set_projection(projection, load_file(file), file)
        elif head := released.read_pooler(Path(source), side, self.tied):
            _set_projection(projection, head, f"pooler.pt of {source}")
        elif head := st.read_dense(model := hub.resolve_model(self.model_of(side)), side):
            _set_projection(projection, head, f"the Dense layer of {model}")
        elif projection:
            _draw(projection, generator)
        return TransformerTower(backbone, self.pooling, self.normalize, projection)

    def load(self, folder: Path) -> Tower:
        backbone = self._saved(str(folder))
        if projection := self._linear(backbone):
            if not (file := folder / PROJECTION).exists():
                raise RuntimeError(
                    f"{file} is missing, and encoder.projection is {self.projection}; fetch the checkpoint "
                    "again"
                )
            _set_projection(projection, load_file(file), file)
        return TransformerTower(backbone, self.pooling, self.normalize, projection)

    def save(self, tower: Tower, folder: Path) -> None:
        assert isinstance(tower, TransformerTower)
        # By default, transformers would restore the names of the release.
        tower.backbone.save_pretrained(folder, save_original_format=False)
        if tower.projection:
            save_file(tower.projection.state_dict(), folder / PROJECTION)

    def _linear(self, backbone: Any) -> nn.Linear | None:
        """The projection without values: torch would draw them without the run's seed."""
        if self.projection is None:
            return None
        linear: nn.Linear = nn.utils.skip_init(nn.Linear, backbone.config.hidden_size, self.projection)
        return linear

    def _saved(self, source: str) -> Any:
        """A backbone as `save` wrote it, or as a run exported it (`exports.py`)."""
        from transformers import PreTrainedConfig

        written = PreTrainedConfig.get_config_dict(source)[0]
        is_dpr = written.get("model_type") in released.DPR.model_types
        return self._dpr(source, written) if is_dpr else self._backbone(source)

    def _dpr(self, source: str, written: dict[str, Any]) -> Any:
        from transformers import BertConfig

        config = BertConfig.from_dict({**written, "model_type": "bert", "architectures": None})
        return self._backbone(source, released.DPR, config=config, key_mapping=dict(released.DPR.names))

    def _released(self, source: str, side: Side) -> Any:
        """A backbone of another project: a DPR file or folder, or a model that AutoModel supports."""
        from transformers import PreTrainedConfig

        if Path(source).is_file():
            return self._dpr_file(source, side)
        model = hub.resolve_model(self.model_of(side))
        self._check_left_out(model)
        if side == "query":
            st.check_similarity(model, at(side, self.normalize))
        written = PreTrainedConfig.get_config_dict(source)[0]
        if released.form_of(released.SEED.kind, source, written) is released.SEED:
            cure = "set encoder.kind=roberta_ance, and for a pretrained one also encoder.head=new"
            raise ValueError(f"{source} is a SEED-Encoder, which Hugging Face does not support; {cure}")
        form = released.form_of("transformer", source, written)
        if form is not None:
            released.warn_about_settings(form, source, self)
        if form is not released.DPR:
            return self._backbone(source, form)
        if (saved_side := released.DPR_FOLDER.get((written.get("architectures") or [""])[0], side)) != side:
            cure = "set encoder.tied=false, model to the question encoder, document_model to the other"
            raise ValueError(f"{source} is a DPR encoder of the {saved_side} side; {cure}")
        return self._dpr(source, written)

    def _check_left_out(self, source: str) -> None:
        """Raise ValueError if the settings were read before the files that say what they leave out."""
        if Path(source).exists() or not st.sentence_transformers_settings(source, download=True):
            return
        now = type(self).model_validate(self.model_dump(exclude_unset=True, by_alias=True))
        if now != self:
            raise ValueError(
                f"{source} is a sentence-transformers model that was not in the hub's cache when the "
                "settings were read. It is now: start again, and pooling, normalize, prompts and lengths "
                "that are left out are taken from its files"
            )

    def _dpr_file(self, source: str, side: Side) -> Any:
        from transformers import BertConfig

        if self.tied:
            raise ValueError(f"{source} contains two towers; set encoder.tied=false")
        released.warn_about_settings(released.DPR, source, self)
        assert self.base is not None, "a DPR file without `base` has no tokenizer, which is loaded first"
        config = BertConfig.from_pretrained(hub.resolve_model(self.base))
        weights = released.read_dpr_file(Path(source), side)
        return self._backbone(source, released.DPR, config=config, state_dict=weights)

    def _backbone(self, source: str, form: released.Form | None = None, **options: Any) -> Any:
        """Load the weights of `source`, or `state_dict`. Raises RuntimeError for missing or unexpected
        weights, and for those of other sizes."""
        from transformers import AutoModel, BertModel

        backbone, report = load_weights(BertModel if "config" in options else AutoModel, source, **options)
        if missing := sorted(key for key in report["missing_keys"] if not key.startswith("pooler.")):
            raise RuntimeError(f"{source} lacks {len(missing)} weights of the encoder, first {missing[0]}")
        if any("embeddingHead." in key for key in report["unexpected_keys"]):
            raise RuntimeError(
                f"{source} has an ANCE head, which kind: transformer would ignore; set "
                "encoder.kind=roberta_ance"
            )
        released.check_unexpected_weights(source, report["unexpected_keys"], form)
        return backbone


def _keys(values: Mapping[str, Any], before: str = "") -> set[str]:
    """The keys of nested settings, joined by dots."""
    inner = (_keys(value, f"{before}{key}.") for key, value in values.items() if isinstance(value, dict))
    return {f"{before}{key}" for key in values}.union(*inner)


def _set_projection(projection: nn.Linear | None, saved: dict[str, torch.Tensor], source: Path | str) -> None:
    size, hidden = saved["weight"].shape
    if projection is None or saved["weight"].shape != projection.weight.shape:
        raise ValueError(
            f"{source} projects {hidden} numbers to {size}, but encoder.projection is "
            f"{projection and projection.out_features}; set it to {size}"
        )
    projection.load_state_dict(saved)


def _draw(projection: nn.Linear, generator: torch.Generator) -> None:
    """Draw weights from N(0, 0.02) and set the bias to zero, as BERT initializes its layers."""
    with torch.no_grad():
        projection.weight.normal_(0.0, 0.02, generator=generator)
        projection.bias.zero_()
