"""Regularizers: what a term asks of the vectors themselves, one file a kind."""

NOT_KINDS = ("regularizer",)
