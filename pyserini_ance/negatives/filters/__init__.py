"""Filters against false negatives, one file a kind: what a recipe lists under `filters:` of a source."""

NOT_KINDS = ("base",)
