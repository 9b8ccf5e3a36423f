"""`pyserini-ance encode`: encode a JSONL corpus into a Faiss folder that Pyserini searches."""

import argparse
import logging
import tempfile
from contextlib import ExitStack
from pathlib import Path

from pyserini_ance.commands import console
from pyserini_ance.data.formats.pyserini_jsonl import PyseriniJsonl
from pyserini_ance.data.passages import check_delimiter, passage_ids
from pyserini_ance.distributed.failures import interrupt_on_termination
from pyserini_ance.distributed.world import World
from pyserini_ance.encoders.encoder import resolve_precision
from pyserini_ance.encoders.family import SIDE_FILE
from pyserini_ance.encoders.load_save import load_tower, read_side_file
from pyserini_ance.encoders.tokenization import split_into_passages, token_store
from pyserini_ance.storage.files import sha256_file
from pyserini_ance.vectors.encoding import encode_shards

EXAMPLE = "pyserini-ance encode --corpus corpus.jsonl --encoder runs/demo-ance/model --output encoded"


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
    from pyserini_ance.pyserini_bridge.export import require_faiss, write_index

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


def main(arguments: list[str] | None = None) -> None:
    args = _parse(arguments)
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    interrupt_on_termination()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with World.join(args.device).session() as world, ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory  # next to the output: it is renamed into place
        scratch = world.on_main(
            lambda: stack.enter_context(temporary(prefix=".pyserini_ance.", dir=args.output.parent))
        )
        count = encode_corpus(
            args.corpus,
            args.encoder,
            args.output,
            args.precision,
            args.tokens_per_batch,
            args.device if world.size == 1 else world.device,
            Path(scratch),
            world,
        )
        world.barrier()  # NFS cannot remove a folder while another process has one of its files open
    if world.is_main:
        print(
            f"{args.output}: {count:,} documents; search it with: "
            f"pyserini-ance search faiss --index {args.output} ..."
        )


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = console.command_parser(
        "encode", "Encode a JSONL corpus into a Faiss folder that Pyserini searches.", EXAMPLE
    )
    files = parser.add_argument_group("input and output")
    files.add_argument(
        "--corpus",
        type=Path,
        required=True,
        help="a .jsonl(.gz) file, or a folder of them: id, and contents or title and text",
    )
    files.add_argument(
        "--encoder", type=Path, required=True, help="an encoder saved by pyserini_ance, such as RUN/model"
    )
    files.add_argument(
        "--output", type=Path, required=True, help="the Faiss folder to write: index, docid, encoder.json"
    )
    encoding = parser.add_argument_group("encoding")
    encoding.add_argument(
        "--precision",
        choices=("fp32", "bf16", "auto"),
        default="fp32",
        help="auto: bf16 if the device is fast at it (default: %(default)s)",
    )
    encoding.add_argument(
        "--tokens-per-batch",
        type=int,
        default=8192,
        help="tokens of one batch, padding included (default: %(default)s)",
    )
    encoding.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: %(default)s)")
    return parser.parse_args(arguments)
