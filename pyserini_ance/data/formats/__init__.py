"""Formats of collections: adapters, each of which reads files of one layout into a Collection."""

NOT_KINDS = ("builder", "format", "lines", "records")
SHARED_FILES = dict.fromkeys(("msmarco_doc", "msmarco_passage", "pyserini_jsonl"), "topics")
SHARED_FILES |= dict.fromkeys(("flagembedding", "tevatron"), "training_files")
