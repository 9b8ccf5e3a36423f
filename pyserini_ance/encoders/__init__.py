"""Encoders: two towers and their tokenization, one file a family; loading, saving and export."""

NOT_KINDS = (
    "batching",
    "cross_encoder_model",
    "dpr_export",
    "encoder",
    "family",
    "foreign_formats",
    "fused_layer",
    "hardware",
    "hub",
    "inference_copy",
    "kept_memory",
    "layer_reduction",
    "load_save",
    "released",
    "sentence_transformers_export",
    "sentence_transformers_import",
    "tokenization",
)
