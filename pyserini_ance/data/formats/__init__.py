"""Formats of collections, one adapter per file: each reads files of one layout into a Collection."""

NOT_KINDS = ("builder", "format", "lines", "records", "topics", "training_files")
