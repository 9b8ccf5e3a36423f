"""`pyserini-ance merge`: join the shards of an encoded corpus into one folder."""

from pathlib import Path

from pyserini_ance.commands import console
from pyserini_ance.distributed.failures import interrupt_on_termination

DETAILS = """A shard is a folder that `encode --shard I/N` wrote. All N shards are needed, in any order; they
must be of one corpus, encoder, format, precision and batch size. The folder equals, byte for byte, what
`encode` writes without --shard. `search faiss` also searches Faiss shards as they are: give --index once for
each."""
EXAMPLE = "pyserini-ance merge shards/* --output encoded"


def main(arguments: list[str] | None = None) -> None:
    parser = console.command_parser(
        "merge", "Join the shards of an encoded corpus into one folder.", EXAMPLE, DETAILS
    )
    parser.add_argument("shards", type=Path, nargs="+", metavar="SHARD", help="a folder of `encode --shard`")
    parser.add_argument("--output", type=console.output_folder, required=True, help="the folder to write")
    args = parser.parse_args(arguments)
    console.log_to_stderr()
    interrupt_on_termination()
    from pyserini_ance.pyserini_bridge.shards import merge_folders

    rows = merge_folders(args.shards, args.output)
    print(f"{args.output}: {rows:,} rows of {len(args.shards)} shards")
