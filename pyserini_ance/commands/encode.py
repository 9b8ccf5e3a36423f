"""`pyserini-ance encode`: encode a JSONL corpus, or take an index's vectors, into files of other programs."""

import argparse
import shlex
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from pyserini_ance.commands import console
from pyserini_ance.distributed.failures import interrupt_on_termination

if TYPE_CHECKING:
    from pyserini_ance.pipeline.corpus_encoding import VectorFormat

EXAMPLE = """pyserini-ance encode --corpus corpus.jsonl --encoder runs/demo-ance/model --output encoded
  pyserini-ance encode --from-index runs/demo-ance/index --format parquet --output parquet"""
FORMATS = ("faiss", "parquet", "jsonl")
NUMBER_TYPES = ("fp32", "fp16")


def main(arguments: list[str] | None = None) -> None:
    args = _parse(arguments)
    console.log_to_stderr()
    interrupt_on_termination()
    from pyserini_ance.pipeline.corpus_encoding import VectorFormat, convert_index
    from pyserini_ance.vectors.faiss_index import FLAT

    output = VectorFormat(args.format, args.index_factory or FLAT, args.number_type or "fp32")
    if args.from_index:
        count = convert_index(args.from_index, args.output, output)
        print(f"{args.output}: {count:,} vectors")
        return
    count = _encode(args, output)
    if console.is_main():
        print(f"{args.output}: {count:,} documents")
        if args.format == "faiss" and not args.shard:
            words = ["--encoder", args.encoder, "--index", args.output]
            command = shlex.join(map(str, ["pyserini-ance", "search", "faiss", *words]))
            print(f"search it with: {command} --topics TOPICS --output RUN.trec")


def _encode(args: argparse.Namespace, output: "VectorFormat") -> int:
    """Encode the corpus on all processes and write it on the main one; the number of documents."""
    from pyserini_ance.data.formats.text_files import names_of_file
    from pyserini_ance.distributed.world import World
    from pyserini_ance.pipeline.corpus_encoding import encode_corpus
    from pyserini_ance.storage.liveness import remove_leftovers, temp_path
    from pyserini_ance.vectors.shards import Shard

    shard = Shard.parse(args.shard) if args.shard else None
    if not any(path.exists() for path in names_of_file(args.corpus)):
        raise FileNotFoundError(
            f"--corpus {args.corpus}: no such file or folder (relative paths start at the working directory, "
            f"now {Path.cwd()})"
        )
    with World.join(args.device).session() as world, ExitStack() as stack:

        def make_scratch() -> str:
            """Next to the output, which is renamed into place."""
            args.output.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(args.output.parent)
            folder = temp_path(args.output.with_name(f"{args.output.name}.scratch"), "tmp")
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            folder.mkdir()
            return str(folder)

        scratch = world.on_main(make_scratch)
        count = encode_corpus(
            args.corpus,
            args.encoder,
            args.output,
            output,
            args.precision,
            args.tokens_per_batch,
            Path(scratch),
            world,
            shard,
            console.foreign_settings(args),
            args.empty_documents,
        )
        world.barrier()  # NFS cannot remove a folder while another process has one of its files open
    return count


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = console.command_parser(
        "encode",
        "Encode a JSONL corpus, or take the vectors of an index, into files of other programs.",
        EXAMPLE,
    )
    source = parser.add_argument_group("input: a corpus with an encoder, or an index")
    add = source.add_argument
    corpus = "a .jsonl(.gz) file, or a folder of them: id, and contents or title and text"
    add("--corpus", type=Path, help=corpus)
    empty = "documents without text are an error (refuse), or left out (skip) (default: %(default)s)"
    add("--empty-documents", choices=("refuse", "skip"), default="refuse", help=empty)
    add("--encoder", help="RUN, an encoder's folder, or any Hugging Face folder or hub name")
    index = "RUN, RUN/index or another flat Faiss folder: its vectors are written, nothing is encoded"
    add("--from-index", type=Path, metavar="FOLDER", help=index)
    add = parser.add_argument_group("output").add_argument
    add("--output", type=console.output_folder, required=True, metavar="FOLDER", help="the folder to write")
    formats = (
        "faiss: index, docid, encoder.json, for Pyserini; parquet: part-*.parquet with docid and vector, for "
        "Anserini's HNSW and vector databases; jsonl: embeddings.jsonl as pyserini.encode writes it "
        "(default: %(default)s)"
    )
    add("--format", choices=FORMATS, default=FORMATS[0], help=formats)
    factory = (
        "with faiss: a Faiss factory string as in a recipe's final_evaluation.indexes, such as HNSW32, "
        "IVF64,PQ16 or 'HNSW32;efSearch=64' (default: flat, exact)"
    )
    add("--index-factory", metavar="FACTORY", help=factory)
    numbers = "with parquet: the type of a vector's numbers (default: fp32)"
    add("--number-type", choices=NUMBER_TYPES, help=numbers)
    shard = "encode part I of N of the corpus alone, unless the output holds it; `merge` joins the parts"
    add("--shard", metavar="I/N", help=shard)
    add = parser.add_argument_group("encoding").add_argument
    precision = "auto: bf16 if the device is fast at it (default: %(default)s)"
    add("--precision", choices=("fp32", "bf16", "fp16", "auto"), default="fp32", help=precision)
    budget = "tokens of one batch, padding included (default: 1,024 on a CPU, 8,192 on a GPU)"
    add("--tokens-per-batch", type=console.positive_int, help=budget)
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1, ... (default: %(default)s)")
    console.add_foreign_encoder(parser)
    args = parser.parse_args(arguments)
    _check(parser, args)
    return args


def _check(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exit with a message for arguments that do not go together."""
    if bool(args.from_index) == bool(args.corpus or args.encoder):
        parser.error("pass --corpus with --encoder, or --from-index alone")
    if not args.from_index and not (args.corpus and args.encoder):
        parser.error(f"{'--encoder' if args.corpus else '--corpus'} is missing")
    if args.from_index:
        encoding = ("--precision", "--tokens-per-batch", "--device", "--pooling", "--normalize")
        reason = "--from-index takes vectors as they are and encodes nothing"
        lengths = ("--query-length", "--document-length")
        console.refuse_options(parser, args, reason, *encoding, *lengths, "--empty-documents")
    if args.index_factory and args.format != "faiss":
        parser.error(f"--index-factory is for --format faiss, not {args.format}")
    if args.number_type and args.format != "parquet":
        parser.error(f"--number-type is for --format parquet, not {args.format}")
    if args.shard and (args.from_index or args.index_factory):
        parser.error("--shard is for a corpus and a flat index; convert the merged one with --from-index")
