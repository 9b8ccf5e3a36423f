"""`python -m pyserini_ance.search`: Pyserini's own commands, with Java started and our encoders known."""

import argparse
import logging
from collections.abc import Sequence

from pyserini_ance import cli
from pyserini_ance.pyserini_bridge.launch import run_module

MODULES = {
    "faiss": "pyserini.search.faiss",
    "lucene": "pyserini.search.lucene",
    "hybrid": "pyserini.search.hybrid",
    "encode": "pyserini.encode",
    "index": "pyserini.index.lucene",
    "trec_eval": "pyserini.eval.trec_eval",
}
TABLE = "\n".join(f"  {word:<10} python -m {module}" for word, module in MODULES.items())
EPILOG = f"""commands:
{TABLE}

example:
  python -m pyserini_ance.search faiss --encoder RUN/model --encoder-class pyserini_ance \\
    --topics RUN/topics.test.tsv --index RUN/index --output run.test.txt --hits 100

`python -m pyserini_ance.search faiss --help` shows the flags of a command."""


def main(arguments: Sequence[str] | None = None) -> None:
    logging.basicConfig(format="%(levelname)s: %(message)s")
    options = _parser().parse_args(arguments)
    run_module(MODULES[options.command], options.flags)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyserini_ance.search",
        description="Run a command of Pyserini, unmodified, with its own flags: where no full JDK 21 is installed (the embedded "
        "Java is started), and for encoders that need --encoder-class pyserini_ance.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=MODULES, metavar="COMMAND", help="one of: " + ", ".join(MODULES))
    parser.add_argument("flags", nargs=argparse.REMAINDER, metavar="...", help="flags of that command")
    return parser


if __name__ == "__main__":
    cli.run(main)
