"""`pyserini-ance encode`: encode a JSONL corpus into a Faiss folder that Pyserini searches."""

import argparse
import logging
import tempfile
from contextlib import ExitStack
from pathlib import Path

from pyserini_ance.commands import console
from pyserini_ance.distributed.failures import interrupt_on_termination

EXAMPLE = "pyserini-ance encode --corpus corpus.jsonl --encoder runs/demo-ance/model --output encoded"


def main(arguments: list[str] | None = None) -> None:
    args = _parse(arguments)
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    interrupt_on_termination()
    from pyserini_ance.distributed.world import World
    from pyserini_ance.pipeline.corpus_encoding import encode_corpus

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
