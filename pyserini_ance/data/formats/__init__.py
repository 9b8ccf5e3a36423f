"""Formats of collections, one adapter per file: each reads files of one layout into a Collection."""

NOT_KINDS = (
    "builder",
    "empty_documents",
    "files",
    "format",
    "lines",
    "reading",
    "records",
    "text_files",
    "training_files",
    "unknown_ids",
)
