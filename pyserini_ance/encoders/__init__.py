"""Encoders: two towers, their tokenisation, and one file a family. A checkpoint folder says everything about its encoder."""

NOT_KINDS = ("batching", "checkpoint", "encoder", "family", "released", "tokenization", "two_tower")
