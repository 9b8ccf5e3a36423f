"""Any Hugging Face encoder with CLS or mean pooling, optional projection and l2 normalisation; stock Pyserini classes `auto` and `dpr`."""

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import PositiveInt
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from pyserini_ance.data.collection import Side
from pyserini_ance.encoders.family import SIDE_FILE, Family, Switch, Tower, at, longest_input, pool, quiet_transformers, resolve_model
from pyserini_ance.encoders.foreign import read_dpr_file, read_pooler, refuse_modules
from pyserini_ance.encoders.released import DPR, DPR_FOLDER, SEED, Form, form_of, refuse_unexpected, tell_reading

PROJECTION = "projection.safetensors"


class TransformerTower(Tower):
    def __init__(self, backbone, pooling: str, l2: Switch, projection: nn.Linear | None):
        super().__init__()
        self.backbone, self.pooling, self.l2, self.projection = backbone, pooling, l2, projection
        self.dimension = projection.out_features if projection else backbone.config.hidden_size
        self.longest_input = longest_input(backbone)

    def forward(self, side: Side, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors = pool(hidden, mask, self.pooling)
        vectors = self.projection(vectors).float() if self.projection else vectors
        return functional.normalize(vectors, dim=-1) if at(side, self.l2) else vectors


class Transformer(Family):
    """`projection` makes vectors of that size by a linear layer behind the pooling; it lies in a file of its own beside the model's."""

    kind: Literal["transformer"] = "transformer"
    projection: PositiveInt | None = None

    def build(self, source: str, side: Side, generator: torch.Generator) -> Tower:
        """Drawn are a projection that the source lacks, and a pooler, which has no part in the vectors, but in the hash of the saved weights."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed())
            backbone = self._saved(source) if (Path(source) / SIDE_FILE).exists() else self._released(source, side)
        projection = self._linear(backbone)
        if (file := Path(source) / PROJECTION).exists():
            _set_projection(projection, load_file(file), file)
        elif head := read_pooler(Path(source), side, self.tied):
            _set_projection(projection, head, f"pooler.pt of {source}")
        elif projection:
            _draw(projection, generator)
        return TransformerTower(backbone, self.pooling, self.l2, projection)

    def load(self, folder: Path) -> Tower:
        backbone = self._saved(str(folder))
        projection = self._linear(backbone)
        if projection:
            if not (file := folder / PROJECTION).exists():
                raise RuntimeError(f"{file} is missing, and encoder.projection is {self.projection}; fetch the checkpoint again")
            _set_projection(projection, load_file(file), file)
        return TransformerTower(backbone, self.pooling, self.l2, projection)

    def save(self, tower: Tower, folder: Path) -> None:
        tower.backbone.save_pretrained(folder, save_original_format=False)  # else under the names that a release had
        if tower.projection:
            save_file(tower.projection.state_dict(), folder / PROJECTION)

    def _linear(self, backbone) -> nn.Linear | None:
        """Not yet set: what torch would draw comes from no seed of ours."""
        return self.projection and nn.utils.skip_init(nn.Linear, backbone.config.hidden_size, self.projection)

    def _saved(self, source: str):
        """A backbone as `save` wrote it, or as a run exported it (`dpr.py`): trained under our settings, and for either side."""
        from transformers import PreTrainedConfig

        written = PreTrainedConfig.get_config_dict(source)[0]
        return self._dpr(source, written) if written.get("model_type") in DPR.model_types else self._backbone(source)

    def _dpr(self, source: str, written: dict[str, Any]):
        from transformers import BertConfig

        config = BertConfig.from_dict({**written, "model_type": "bert", "architectures": None})
        return self._backbone(source, DPR, config=config, key_mapping=dict(DPR.names))

    def _released(self, source: str, side: Side):
        """A backbone as others write it: a DPR file or folder, or whatever Hugging Face's AutoModel reads."""
        from transformers import BertConfig, PreTrainedConfig

        if Path(source).is_file():
            if self.tied:
                raise ValueError(f"{source} holds two towers; set encoder.tied=false")
            tell_reading(DPR, source, self.tokenization)
            config = BertConfig.from_pretrained(resolve_model(self.base))  # without `base` there was no tokenizer either
            return self._backbone(source, DPR, config=config, state_dict=read_dpr_file(Path(source), side))
        refuse_modules(source)
        written = PreTrainedConfig.get_config_dict(source)[0]
        if form_of(SEED.kind, source, written) is SEED:
            cure = "set encoder.kind=roberta_ance, for one that was only pretrained with encoder.head=new"
            raise ValueError(f"{source} is a SEED-Encoder, which Hugging Face does not know; {cure}")
        form = form_of("transformer", source, written)
        if form is not None:
            tell_reading(form, source, self.tokenization)
        if form is not DPR:
            return self._backbone(source, form)
        if (of := DPR_FOLDER.get((written.get("architectures") or [""])[0], side)) != side:
            cure = "set encoder.tied=false, with the question encoder as model and the context encoder as document_model"
            raise ValueError(f"{source} is a DPR encoder of the {of} side; {cure}")
        return self._dpr(source, written)

    def _backbone(self, source: str, form: Form | None = None, state_dict: dict[str, torch.Tensor] | None = None, **how):
        from transformers import AutoModel, BertModel

        quiet_transformers()
        loader, where = (BertModel, source) if "config" in how else (AutoModel, source)
        if state_dict is not None:
            where, how = None, {**how, "state_dict": state_dict}
        backbone, report = loader.from_pretrained(where, dtype=torch.float32, output_loading_info=True, **how)
        lost = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
        if lost:
            raise RuntimeError(f"{source} lacks {len(lost)} weights of the encoder, first {', '.join(lost[:3])}")
        if any("embeddingHead." in key for key in report["unexpected_keys"]):
            raise RuntimeError(f"{source} has an ANCE head, which kind: transformer would leave out; set encoder.kind=roberta_ance")
        refuse_unexpected(source, report["unexpected_keys"], form)
        return backbone


def _set_projection(projection: nn.Linear | None, saved: dict[str, torch.Tensor], source: Path | str) -> None:
    size, hidden = saved["weight"].shape
    if projection is None or saved["weight"].shape != projection.weight.shape:
        wanted = projection and projection.out_features
        raise ValueError(f"{source} projects {hidden} numbers to {size}, but encoder.projection is {wanted}; set it to {size}")
    projection.load_state_dict(saved)


def _draw(projection: nn.Linear, generator: torch.Generator) -> None:
    """N(0, 0.02) and zero bias, as BERT draws its layers."""
    with torch.no_grad():
        projection.weight.normal_(0.0, 0.02, generator=generator)
        projection.bias.zero_()
