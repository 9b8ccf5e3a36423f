"""Any Hugging Face encoder with CLS or mean pooling, optional projection and l2 normalisation; stock Pyserini class `auto`."""

from pathlib import Path
from typing import Literal

import torch
from pydantic import PositiveInt
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from pyserini_ance.encoders.family import Family, Switch, Tower, at, longest_input, pool, quiet_transformers
from pyserini_ance.encoders.tokenization import Side

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
            backbone = self._backbone(source)
        projection = self.projection and nn.Linear(backbone.config.hidden_size, self.projection)
        if (file := Path(source) / PROJECTION).exists():
            self._read_projection(projection, file)
        elif projection:
            _draw(projection, generator)
        return TransformerTower(backbone, self.pooling, self.l2, projection)

    def load(self, folder: Path) -> Tower:
        backbone = self._backbone(str(folder))
        projection = self.projection and nn.Linear(backbone.config.hidden_size, self.projection)
        if projection:
            self._read_projection(projection, folder / PROJECTION)
        return TransformerTower(backbone, self.pooling, self.l2, projection)

    def save(self, tower: Tower, folder: Path) -> None:
        tower.backbone.save_pretrained(folder)
        if tower.projection:
            save_file(tower.projection.state_dict(), folder / PROJECTION)

    def _read_projection(self, projection: nn.Linear | None, file: Path) -> None:
        if not file.exists():
            raise RuntimeError(f"{file} is missing, and encoder.projection is {self.projection}; fetch the checkpoint again")
        saved = load_file(file)
        if projection is None or saved["weight"].shape != projection.weight.shape:
            size, hidden = saved["weight"].shape
            raise ValueError(f"{file} projects {hidden} numbers to {size}, but encoder.projection is {self.projection}; set it to {size}")
        projection.load_state_dict(saved)

    def _backbone(self, folder: str):
        from transformers import AutoModel

        quiet_transformers()
        backbone, report = AutoModel.from_pretrained(str(folder), dtype=torch.float32, output_loading_info=True)
        lost = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
        if lost:
            raise RuntimeError(f"{folder} lacks {len(lost)} weights of the encoder, first {', '.join(lost[:3])}")
        if any(key.startswith("embeddingHead.") for key in report["unexpected_keys"]):
            raise RuntimeError(f"{folder} has an ANCE head, which kind: transformer would leave out; set encoder.kind=roberta_ance")
        return backbone


def _draw(projection: nn.Linear, generator: torch.Generator) -> None:
    """N(0, 0.02) and zero bias, as BERT draws its layers."""
    with torch.no_grad():
        projection.weight.normal_(0.0, 0.02, generator=generator)
        projection.bias.zero_()
