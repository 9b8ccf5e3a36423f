"""`python -m pyserini_ance.encode`: a JSONL corpus becomes a Pyserini Faiss folder, by a trained encoder, fast."""

import argparse
import logging
import tempfile
from contextlib import ExitStack
from pathlib import Path

from pyserini_ance import cli
from pyserini_ance.distributed.interruption import interrupt_on_termination


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pyserini_ance.encode", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="a .jsonl(.gz) file, or a folder of them: id, and contents or title and text")
    parser.add_argument("--encoder", type=Path, required=True, help="an encoder saved by pyserini_ance, such as RUN/model")
    parser.add_argument("--output", type=Path, required=True, help="the Faiss folder to write: index, docid, encoder.json")
    parser.add_argument("--precision", choices=("fp32", "bf16", "auto"), default="fp32", help="auto: bf16 where the processor is fast at it")
    parser.add_argument("--tokens-per-batch", type=int, default=8192, help="padded tokens of one batch")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ...")
    args = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    interrupt_on_termination()
    from pyserini_ance.distributed.world import World
    from pyserini_ance.experiment.encode import encode_corpus

    with World.join(args.device).guarding() as world, ExitStack() as stack:
        made = world.once(lambda: stack.enter_context(tempfile.TemporaryDirectory(prefix=".pyserini_ance.", dir=_parent(args.output))))
        device = args.device if world.size == 1 else world.device
        count = encode_corpus(args.corpus, args.encoder, args.output, args.precision, args.tokens_per_batch, device, Path(made), world)
        world.meet()  # NFS removes no folder in which somebody still has a file open
    if world.is_main:
        print(f"{args.output}: {count:,} documents; search it with: python -m pyserini_ance.search faiss --index {args.output} ...")


def _parent(output: Path) -> Path:
    output.parent.mkdir(parents=True, exist_ok=True)
    return output.parent


if __name__ == "__main__":
    cli.run(main)
