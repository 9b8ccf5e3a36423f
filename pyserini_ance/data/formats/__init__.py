"""Adapters, one file a format: each reads files of one layout into a Collection."""

NOT_KINDS = ("bar", "contexts", "format", "gather", "lines", "named_rows", "official", "records", "sources", "tables")
