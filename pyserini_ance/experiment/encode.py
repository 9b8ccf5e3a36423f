"""Encoding a corpus of its own with a finished encoder into a Pyserini Faiss folder."""

from pathlib import Path

from pyserini_ance.data.formats.pyserini_jsonl import PyseriniJsonl
from pyserini_ance.data.passages import passage_ids, refuse_delimiter
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.checkpoint import SIDE_FILE, load_tower, read_side_file
from pyserini_ance.experiment.prepare import in_passages, token_store
from pyserini_ance.storage.files import sha256_file
from pyserini_ance.vectors.precision import resolve_precision
from pyserini_ance.vectors.shards import encode_shards


def encode_corpus(
    corpus: Path, encoder: Path, output: Path, precision: str, tokens_per_batch: int, device: str, scratch: Path, world: World
) -> int:
    """Write the Faiss folder `output` with a sidecar that names its encoder; returns the number of documents.

    The corpus is checked like a recipe's: unique ids, no empty document. An encoder that reads documents in passages writes
    a row for each, to be searched with `--max-passage`. Called by all processes with the same `scratch`
    folder; the first one writes.
    """
    from pyserini_ance.pyserini_bridge.export import require_faiss, write_index

    require_faiss()
    if output.exists():
        raise FileExistsError(f"{output} exists; remove it or name another folder")
    side, model = read_side_file(encoder), load_tower(encoder, "document", device)
    documents = PyseriniJsonl(corpus=corpus, splits={}).read(scratch / f"documents-{world.rank}").documents
    whole = token_store(model.tokenizer, "document", documents, scratch / "tokens", "documents")
    tokens, passages = in_passages(whole, model.family.tokenization)
    if passages:
        refuse_delimiter(documents.ids)
    about = {"encoder": str(encoder.absolute()), "side_file_sha256": sha256_file(encoder / SIDE_FILE), "kind": side["kind"]}
    about["precision"] = chosen = world.once(lambda: resolve_precision(precision, device))
    vectors = encode_shards(scratch / "vectors", about, model, tokens, "document", chosen, tokens_per_batch, "documents", world)
    world.once(lambda: write_index(vectors, passage_ids(documents.ids, passages), output, about))
    return len(documents)
