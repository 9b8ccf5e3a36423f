"""Encode a corpus with a saved encoder into a Faiss folder that Pyserini searches."""

from pathlib import Path

from pyserini_ance.data.formats.pyserini_jsonl import PyseriniJsonl
from pyserini_ance.data.passages import check_delimiter, passage_ids
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import resolve_precision
from pyserini_ance.encoders.family import SIDE_FILE
from pyserini_ance.encoders.load_save import load_tower, read_side_file
from pyserini_ance.encoders.tokenization import split_into_passages, token_store
from pyserini_ance.pyserini_bridge.export import require_faiss, write_index
from pyserini_ance.storage.files import sha256_file
from pyserini_ance.vectors.encoding import encode_shards


def encode_corpus(
    corpus: Path,
    encoder: Path,
    output: Path,
    precision: str,
    tokens_per_batch: int,
    device: str,
    scratch: Path,
    world: World,
) -> int:
    """Write the Faiss folder `output`, with a sidecar that names its encoder; returns the number of
    documents.

    The corpus is checked like a recipe's: unique ids, no empty documents. An encoder that reads documents in
    passages writes a row for each passage, to be searched with `--max-passage`. Called by all processes with
    the same `scratch` folder; the main process writes.
    """
    require_faiss()
    if output.exists():
        raise FileExistsError(f"{output} exists; remove it or pass another folder")
    side_file, model = read_side_file(encoder), load_tower(encoder, "document", device)
    documents = PyseriniJsonl(corpus=corpus, splits={}).read(scratch / f"documents-{world.rank}").documents
    whole = token_store(model.tokenizer, "document", documents, scratch / "tokens", "documents")
    tokens, passages = split_into_passages(whole, model.family.tokenization)
    if passages:
        check_delimiter(documents.ids)
    resolved = world.on_main(lambda: resolve_precision(precision, device))
    provenance = {
        "encoder": str(encoder.absolute()),
        "side_file_sha256": sha256_file(encoder / SIDE_FILE),
        "kind": side_file["kind"],
        "precision": resolved,
    }
    vectors = encode_shards(
        scratch / "vectors",
        provenance,
        model,
        tokens,
        "document",
        resolved,
        tokens_per_batch,
        "documents",
        world,
    )
    world.on_main(lambda: write_index(vectors, passage_ids(documents.ids, passages), output, provenance))
    return len(documents)
