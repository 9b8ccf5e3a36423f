"""Adapters, one file a format: each reads files of one layout into a Collection."""

NOT_KINDS = ("contexts", "format", "lines", "named_rows", "records", "sources", "tables")
