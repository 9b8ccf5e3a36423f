"""Encoders: two towers, their tokenisation, and one file a family. A checkpoint folder says everything about its encoder."""

NOT_KINDS = ("batching", "checkpoint", "dpr", "encoder", "family", "foreign", "released", "tokenization", "tokenizer_files", "two_tower")
