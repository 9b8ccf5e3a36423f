"""Our encoder classes in Pyserini's maps, under one name for queries and documents."""

from pyserini_ance.pyserini_bridge.jvm import import_pyserini

ENCODER_CLASS = "pyserini_ance"


def register() -> None:
    """Make `pyserini_ance` an encoder class that Pyserini finds. Starts Java, as every import of Pyserini does."""
    from pyserini_ance.pyserini_bridge.encoders import DocumentEncoder, QueryEncoder

    encode = import_pyserini("pyserini.encode")
    encode.document_encoder_class_map[ENCODER_CLASS] = DocumentEncoder
    encode.query_encoder_class_map[ENCODER_CLASS] = QueryEncoder
