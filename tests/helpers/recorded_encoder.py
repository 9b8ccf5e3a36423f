"""A tiny encoder that records the rows it encodes, and stops after some batches."""

from pathlib import Path

from pyserini_ance.data.token_store import TokenStore
from pyserini_ance.encoders.config import EncoderConfig
from pyserini_ance.encoders.encoder import Encoder, to_host
from pyserini_ance.encoders.initial import initial_encoder

RECORDS = [{"title": "", "text": "word " * (i * 7 % 12) + str(i)} for i in range(12)]
SETTINGS = ("document", "fp32", 40)


def tiny_encoder(model: Path, device: str = "cpu") -> Encoder:
    settings = {"pooling": "mean", "tokenization": {"document": {"length_tokens": 64}}}
    return initial_encoder(EncoderConfig(model=str(model), **settings), 1, device)


def tokens_of(encoder: Encoder, records: list[dict[str, str]] = RECORDS) -> TokenStore:
    return TokenStore.of_lists(encoder.tokenizer.ids("document", records), encoder.tokenizer.specials)


class Recording:
    def __init__(self, encoder: Encoder, stop_after: int | None = None):
        self.encoder, self.stop_after, self.batches = encoder, stop_after, []
        self.dimension, self.length_tokens = encoder.dimension, encoder.length_tokens
        self.device = encoder.device

    @property
    def rows(self) -> list[int]:
        return [row for batch in self.batches for row in batch]

    def encode_rows(self, tokens, *arguments):
        return to_host(self.encode_on_device(tokens, *arguments), tokens)

    def encode_on_device(self, *arguments):
        for rows, vectors in self.encoder.encode_on_device(*arguments):
            if len(self.batches) == self.stop_after:
                raise KeyboardInterrupt
            self.batches.append(rows.tolist())
            yield rows, vectors
