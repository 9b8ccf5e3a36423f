"""`pyserini-ance search`: Pyserini's own commands, with embedded Java and this package's encoder classes."""

import argparse
import logging

from pyserini_ance.commands import console

MODULES = {
    "faiss": "pyserini.search.faiss",
    "lucene": "pyserini.search.lucene",
    "hybrid": "pyserini.search.hybrid",
    "encode": "pyserini.encode",
    "index": "pyserini.index.lucene",
    "index-hnsw": "io.anserini.index.IndexHnswDenseVectors",
    "index-flat": "io.anserini.index.IndexFlatDenseVectors",
    "rest": "pyserini.server.rest",
    "trec_eval": "pyserini.eval.trec_eval",
}
DESCRIPTION = """Run a command of Pyserini, unmodified and with its own options.

Needed if no full JDK 21 is installed (it starts the embedded Java), and for --encoder-class pyserini_ance."""
TABLE = "\n".join(
    f"  {word:<10} {'python -m ' if module.startswith('pyserini') else ''}{module}"
    for word, module in MODULES.items()
)
DETAILS = f"commands:\n{TABLE}\n\n`pyserini-ance search faiss --help` shows the options of a command."
EXAMPLE = """pyserini-ance search faiss --encoder RUN/model --encoder-class pyserini_ance \\
    --topics RUN/topics.test.tsv --index RUN/index --output run.test.txt --hits 100"""


def main(arguments: list[str] | None = None) -> None:
    logging.basicConfig(format="%(levelname)s: %(message)s")
    options = _parser().parse_args(arguments)
    from pyserini_ance.pyserini_bridge.launcher import run_module

    run_module(MODULES[options.command], options.flags)


def _parser() -> argparse.ArgumentParser:
    parser = console.command_parser("search", DESCRIPTION, EXAMPLE, DETAILS)
    parser.add_argument("command", choices=MODULES, metavar="COMMAND", help="one of: " + ", ".join(MODULES))
    parser.add_argument("flags", nargs=argparse.REMAINDER, metavar="...", help="options of that command")
    return parser
