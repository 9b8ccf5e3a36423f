"""Readers: models that answer a question from the passages that were found for it. One file a kind."""

NOT_KINDS = ("reader", "spans")
