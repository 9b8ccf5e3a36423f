"""Encoding a corpus of its own with a finished encoder into a Pyserini Faiss folder."""

from pathlib import Path

from pyserini_ance.data.formats.pyserini_jsonl import PyseriniJsonl
from pyserini_ance.encoders.checkpoint import SIDE_FILE, load_encoder, read_side_file
from pyserini_ance.experiment.prepare import token_store
from pyserini_ance.storage.files import sha256_file
from pyserini_ance.vectors.encode import encode_into
from pyserini_ance.vectors.precision import resolve_precision
from pyserini_ance.vectors.store import VectorStore


def encode_corpus(corpus: Path, encoder: Path, output: Path, precision: str, tokens_per_batch: int, device: str, scratch: Path) -> int:
    """Write the Faiss folder `output` with a sidecar that names its encoder; returns the number of documents.

    The corpus is checked like a recipe's: unique ids, no empty document.
    """
    from pyserini_ance.pyserini_bridge.export import require_faiss, write_index

    require_faiss()
    if output.exists():
        raise FileExistsError(f"{output} exists; remove it or name another folder")
    side, model = read_side_file(encoder), load_encoder(encoder, device)
    documents = PyseriniJsonl(corpus=corpus, splits={}).read().documents
    tokens = token_store(model.tokenizer, "document", documents, scratch / "tokens", "documents")
    precision = resolve_precision(precision, device)
    about = {"encoder": str(encoder.absolute()), "side_file_sha256": sha256_file(encoder / SIDE_FILE), "kind": side["kind"], "precision": precision}
    store = VectorStore(scratch / "vectors", len(tokens), model.dimension, about)
    encode_into(store, model, tokens, "document", precision, tokens_per_batch, "documents")
    write_index(store.read(), documents.ids, output, about)
    store.close()
    return len(documents)
