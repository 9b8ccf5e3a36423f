"""Readers, one file a kind: models that answer a question from retrieved passages."""

NOT_KINDS = ("base",)
