"""Readers: models that answer a question from retrieved passages. Each module is one kind."""

NOT_KINDS = ("reader",)
