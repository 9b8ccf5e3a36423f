"""An encoder ready for use: towers, tokenisation, device. Records go in, vectors come out."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Literal

import numpy as np
import torch
from torch import nn

from pyserini_ance.data.collection import SIDES, Side
from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.encoders.batching import length_sorted_batches
from pyserini_ance.encoders.family import Family
from pyserini_ance.encoders.tokenization import TextTokenizer
from pyserini_ance.encoders.two_tower import TwoTower

Precision = Literal["fp32", "bf16"]


class Encoder:
    """`towers` may be in training mode; encoding switches to evaluation mode and back."""

    def __init__(self, family: Family, towers: TwoTower, tokenizer: TextTokenizer, device: str = "cpu"):
        self.family, self.tokenizer, self.device = family, tokenizer, torch.device(device)
        self.towers = towers.to(self.device)
        if family.dropout is not None:
            _set_dropout(towers, family.dropout)
        if self.device.type == "cpu":
            _use_eager_attention(towers)
        if (dimensions := {towers.tower(side).dimension for side in SIDES}) != {self.dimension}:
            raise ValueError(f"the two towers give vectors of {' and '.join(map(str, sorted(dimensions)))} numbers, which cannot be compared")
        for side in SIDES:
            wanted, longest = self.length_tokens(side), self.towers.tower(side).longest_input
            if wanted > longest:
                raise ValueError(f"encoder.tokenization.{side}.length_tokens is {wanted}, but {family.model_of(side)} reads at most {longest}")
            if wanted <= (specials := len(tokenizer.specials.before) + len(tokenizer.specials.after)):
                raise ValueError(f"encoder.tokenization.{side}.length_tokens is {wanted}, and {specials} of them are special tokens")

    @property
    def dimension(self) -> int:
        return self.towers.queries.dimension

    def untie(self) -> None:
        """From here on documents have a tower of their own."""
        self.towers.untie()
        self.family = self.family.model_copy(update={"tied": False})

    def length_tokens(self, side: Side) -> int:
        return self.family.tokenization.side(side).length_tokens

    def encode(
        self, records: list[dict[str, str]], side: Side, precision: Precision = "fp32", tokens_per_batch: int = 8192
    ) -> np.ndarray:
        """Vectors (N, D) float32 of records (fields such as `title` and `text`), in their order."""
        tokens = TokenStore.of_lists(self.tokenizer.ids(side, records), self.tokenizer.specials)
        vectors = np.empty((len(records), self.dimension), np.float32)
        for rows, block in self.encode_rows(tokens, np.arange(len(records)), side, precision, tokens_per_batch):
            vectors[rows] = block
        return vectors

    def encode_rows(
        self, tokens: TokenStore, rows: np.ndarray, side: Side, precision: Precision, tokens_per_batch: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (rows (B,), vectors (B, D) float32), each row of `rows` once, longest texts first."""
        length = self.length_tokens(side)
        for batch in length_sorted_batches(tokens.lengths(length, rows), tokens_per_batch):
            yield rows[batch], self._encode_batch(tokens, rows[batch], side, precision)

    def _encode_batch(self, tokens: TokenStore, rows: np.ndarray, side: Side, precision: Precision) -> np.ndarray:
        ids, mask = (torch.from_numpy(x).to(self.device) for x in tokens.batch(rows, self.length_tokens(side)))
        training = self.towers.training
        self.towers.eval()
        try:
            with torch.inference_mode(), self.autocast(precision):
                return self.towers(side, ids, mask).cpu().numpy()
        finally:
            self.towers.train(training)

    def autocast(self, precision: Precision):
        """bf16 multiplies with float32 accumulation; vectors leave as float32 either way."""
        return torch.autocast(self.device.type, torch.bfloat16) if precision == "bf16" else nullcontext()


def _use_eager_attention(towers: TwoTower) -> None:
    """On the CPU, attention by two plain products is 1.2 (bf16) to 2 times (fp32) as fast as torch's fused one."""
    for module in towers.modules():
        if hasattr(module, "set_attn_implementation"):
            module.set_attn_implementation("eager")


def _set_dropout(towers: TwoTower, probability: float) -> None:
    for module in towers.modules():
        if isinstance(module, nn.Dropout):
            module.p = probability
