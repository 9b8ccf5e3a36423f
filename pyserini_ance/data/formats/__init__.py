"""Adapters, one file a format: each reads files of one layout into a Collection."""

NOT_KINDS = ("format", "lines", "sources", "tables")
