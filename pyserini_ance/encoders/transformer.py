"""Any Hugging Face encoder with CLS or mean pooling and optional l2 normalisation; stock Pyserini class `auto`."""

from pathlib import Path
from typing import Literal

import torch
from torch.nn import functional

from pyserini_ance.encoders.family import Family, Tower, longest_input, pool, quiet_transformers
from pyserini_ance.encoders.tokenization import Side


class TransformerTower(Tower):
    def __init__(self, backbone, pooling: str, l2: bool):
        super().__init__()
        self.backbone, self.pooling, self.l2 = backbone, pooling, l2
        self.dimension = backbone.config.hidden_size
        self.longest_input = longest_input(backbone)

    def forward(self, side: Side, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors = pool(hidden, mask, self.pooling)
        return functional.normalize(vectors, dim=-1) if self.l2 else vectors


class Transformer(Family):
    kind: Literal["transformer"] = "transformer"

    def build(self, source: str, side: Side, generator: torch.Generator) -> Tower:
        """Only a pooler may be drawn, which has no part in the vectors, but in the hash of the saved weights."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed())
            return self.load(source)

    def load(self, folder: str | Path) -> Tower:
        from transformers import AutoModel

        quiet_transformers()
        backbone, report = AutoModel.from_pretrained(str(folder), dtype=torch.float32, output_loading_info=True)
        lost = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
        if lost:
            raise RuntimeError(f"{folder} lacks {len(lost)} weights of the encoder, first {', '.join(lost[:3])}")
        if any(key.startswith("embeddingHead.") for key in report["unexpected_keys"]):
            raise RuntimeError(f"{folder} has an ANCE head, which kind: transformer would leave out; set encoder.kind=roberta_ance")
        return TransformerTower(backbone, self.pooling, self.l2)

    def save(self, tower: Tower, folder: Path) -> None:
        tower.backbone.save_pretrained(folder)
